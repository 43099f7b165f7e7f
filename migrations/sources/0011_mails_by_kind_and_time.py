from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sources", "0010_foreign_revisions"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["kind", "-id"], name="message_of_kind"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["mailing_list", "kind", "-id"], name="message_of_list_and_kind"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["received_at"], name="message_received_at"),
        ),
    ]
