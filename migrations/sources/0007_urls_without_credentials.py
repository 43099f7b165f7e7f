import re

from django.db import migrations, models

import server.core.addresses

_OPENS = r"^[^/]*://([^/]*@|[^?#]*[?#])"


def cut(apps, _schema_editor):
    """What opened a tree or an archive leaves its address; the next poll fails and says what is missing."""
    for name in ("Tree", "MailingList"):
        model = apps.get_model("sources", name)
        for row in model.objects.filter(url__regex=_OPENS):
            url = re.sub(r"[?#].*", "", re.sub(r"(?<=://)[^/]*@", "", row.url))
            model.objects.filter(pk=row.pk).update(url=url)


class Migration(migrations.Migration):
    dependencies = [("sources", "0006_versions_with_a_point")]

    operations = [
        migrations.RunPython(cut, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="mailinglist",
            name="url",
            field=models.CharField(blank=True, max_length=500, validators=[server.core.addresses.check_address]),
        ),
        migrations.AlterField(
            model_name="tree",
            name="url",
            field=models.CharField(max_length=500, validators=[server.core.addresses.check_address]),
        ),
        migrations.AddConstraint(
            model_name="mailinglist",
            constraint=models.CheckConstraint(
                condition=models.Q(("url__regex", _OPENS), _negated=True), name="mailing_list_url_opens_nothing"
            ),
        ),
        migrations.AddConstraint(
            model_name="tree",
            constraint=models.CheckConstraint(
                condition=models.Q(("url__regex", _OPENS), _negated=True), name="tree_url_opens_nothing"
            ),
        ),
    ]
