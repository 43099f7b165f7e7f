import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
import server.core.clock
import server.core.states
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('detection', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='OptOut',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('address', models.CharField(max_length=320, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['address'],
                'constraints': [models.CheckConstraint(condition=models.Q(('address', django.db.models.functions.text.Lower('address'))), name='opt_out_lower_case')],
            },
        ),
        migrations.CreateModel(
            name='Report',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(max_length=20)),
                ('reason', models.TextField(blank=True, default='', help_text='Why it is in this state, for people.')),
                ('reason_code', models.CharField(blank=True, choices=[('attempt-opened', 'an attempt at it was opened'), ('submitted', 'the dispatcher has accepted it'), ('not-submitted', 'the dispatcher could not accept it; it is tried again'), ('arrived', 'an agent has come for it'), ('claimed', 'an agent works at it'), ('ended', 'its agent has ended, with the outcome that the sentence names'), ('infrastructure', 'something of the lab or the service failed, not what was to be tried'), ('stopped', 'its agent was told to stop'), ('lost', 'its agent, its host or its run in the dispatcher is gone'), ('not-dispatched', 'the dispatcher refused it'), ('too-late', 'it took longer than it may'), ('host-trouble', 'its host is out of service, or was changed'), ('work-over', 'its work was over already'), ('given-up', 'too many attempts brought nothing'), ('not-wanted', 'nobody wants it any more'), ('wanted-again', 'somebody wants it again'), ('asked-again', 'a person asked for it again'), ('by-person', 'a person decided it'), ('check-asked', 'the machine is to be checked'), ('moved', 'another machine or another kernel takes its place'), ('edited', 'its configuration or toolchain was edited'), ('does-not-build', 'the kernel does not build'), ('built-again', 'it was built again, as the same kernel'), ('not-reproduced', 'built again, another kernel came out'), ('expired', 'its files were removed'), ('damaged', 'one of its files is damaged or missing'), ('all-booted', 'all boots have a result'), ('same-code', 'both kernels run the same code: there is nothing to measure'), ('kernel-missing', 'one of its kernels cannot be had'), ('kernel-fails', 'a kernel gives no measurement on the machine'), ('too-few-boots', 'too few boots were measured'), ('session-over', 'its session ended without it'), ('boot-failed', 'the boot gave no measurement; its outcome says how'), ('measured', 'the boot was measured'), ('late', 'measured, and told after its session had ended'), ('quarantined', 'its machine is quarantined'), ('more-boots', 'more boots are wanted before it is judged'), ('waits', 'it waits for machines or kernels'), ('no-machine', 'no machine can measure it'), ('planned', 'its sessions are planned'), ('judged', 'it was judged'), ('not-measured', 'no machine measured it'), ('not-judged', 'judging it took more than a worker has'), ('power-failed', 'the power could not be switched'), ('power-switched', 'the power was switched'), ('left-out', 'a mail that is not proved was left out'), ('incomplete', 'patches are missing'), ('not-checked', 'its senders are not checked yet'), ('not-trusted', 'a sender is not trusted, or not proved: a person lets it run'), ('trusted', 'all senders are trusted and proved'), ('mail-deleted', 'the archive deleted one of its mails'), ('replaced', 'a newer version has replaced it'), ('approved', 'a person let it run'), ('applied', 'it was applied to its base'), ('does-not-apply', 'it applies to no base that comes into question'), ('refused', 'what it holds is not applied by anybody'), ('waits-for-prerequisite', 'a patch that it needs has not come'), ('tried-again', 'applying it failed for reasons that are not its own; it is tried again'), ('git-failed', 'git failed on it again and again'), ('pull-request', 'a pull request'), ('cover-with-diff', 'a cover letter that holds a diff: the diff is not applied'), ('no-diff', 'marked as a patch, but holds no diff'), ('by-program', 'sent by a program: never a patch'), ('no-sender', 'no usable From address'), ('unusable', 'it could not be read'), ('deleted', 'the archive deleted it'), ('named-by-us', 'it has no usable Message-ID'), ('copy', 'another copy of a mail that is here'), ('twin', 'another mail with this Message-ID and subject was here first'), ('place-taken', 'its place in the series is taken by another mail'), ('unproved', 'its sender is not proved, and its series had been checked'), ('doubted', 'its sender is not proved, but others of that sender are'), ('root-taken', 'another series begins with the same Message-ID'), ('not-grouped', 'it could not be made part of a series'), ('suspected', 'timelines moved'), ('taken-back', 'later points took the suspicion back'), ('machine-event', 'it was an event of a machine'), ('not-seen-again', 'fresh boots do not show it'), ('confirmed', 'judged from interleaved boots'), ('layout-checked', 'its layout is being checked'), ('noise', 'it was noise'), ('layout', 'it was the layout of the image'), ('machine', 'it was the machine'), ('same-change', 'another finding tells of the same change'), ('reported', 'it was told by mail'), ('accepted', 'a person accepted it'), ('acceptance-over', 'its acceptance was withdrawn or has expired'), ('fixed', 'a commit mended it'), ('reopened', 'a person says that it is not mended'), ('searched', 'its revision is being looked for'), ('searched-again', 'its revision is looked for once more'), ('ends-verified', 'both ends were measured again'), ('found', 'the revision was found'), ('range', 'it is one of several revisions'), ('not-found', 'the revision could not be found'), ('nothing-left', 'nothing speaks for a change on the machine any more'), ('asked', 'it was asked'), ('answered', 'it was answered'), ('not-moderated', 'the list is not moderated'), ('held-back', 'a person decides whether it is told'), ('text-changed', 'its finding says something else since it was written'), ('incomplete-report', 'not all that it would have to say is known'), ('rejected', 'a person rejected it'), ('sent', 'it was sent'), ('not-sent', 'it could not be sent'), ('must-wait', 'it is sent later'), ('no-data', 'a kernel gave too few values'), ('undecided', 'the interval allows no verdict'), ('not-decidable', 'more boots would not decide it'), ('not-seen-at-last', 'an early look showed a change, all boots do not'), ('adjusted', 'among so many cells it may be chance'), ('check-failed', 'a check took the verdict away'), ('same-image', "both kernels are the same image: the difference is the machine's own"), ('other-machine', 'the machine changed between the boots of the session')], default='', max_length=40)),
                ('state_since', models.DateTimeField(default=server.core.clock.now)),
                ('trace', models.CharField(db_index=True, default=server.core.states.new_trace, max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('subject', models.CharField(blank=True, max_length=200)),
                ('body', models.TextField(blank=True)),
                ('in_reply_to', models.CharField(max_length=500)),
                ('references', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=500), blank=True, default=list, size=None)),
                ('to', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=320), blank=True, default=list, size=None)),
                ('cc', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=320), blank=True, default=list, size=None)),
                ('released', models.BooleanField(default=False, help_text='A person released it.')),
                ('finding', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='report', to='detection.finding')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(max_length=20)),
                ('reason', models.TextField(blank=True, default='', help_text='Why it is in this state, for people.')),
                ('reason_code', models.CharField(blank=True, choices=[('attempt-opened', 'an attempt at it was opened'), ('submitted', 'the dispatcher has accepted it'), ('not-submitted', 'the dispatcher could not accept it; it is tried again'), ('arrived', 'an agent has come for it'), ('claimed', 'an agent works at it'), ('ended', 'its agent has ended, with the outcome that the sentence names'), ('infrastructure', 'something of the lab or the service failed, not what was to be tried'), ('stopped', 'its agent was told to stop'), ('lost', 'its agent, its host or its run in the dispatcher is gone'), ('not-dispatched', 'the dispatcher refused it'), ('too-late', 'it took longer than it may'), ('host-trouble', 'its host is out of service, or was changed'), ('work-over', 'its work was over already'), ('given-up', 'too many attempts brought nothing'), ('not-wanted', 'nobody wants it any more'), ('wanted-again', 'somebody wants it again'), ('asked-again', 'a person asked for it again'), ('by-person', 'a person decided it'), ('check-asked', 'the machine is to be checked'), ('moved', 'another machine or another kernel takes its place'), ('edited', 'its configuration or toolchain was edited'), ('does-not-build', 'the kernel does not build'), ('built-again', 'it was built again, as the same kernel'), ('not-reproduced', 'built again, another kernel came out'), ('expired', 'its files were removed'), ('damaged', 'one of its files is damaged or missing'), ('all-booted', 'all boots have a result'), ('same-code', 'both kernels run the same code: there is nothing to measure'), ('kernel-missing', 'one of its kernels cannot be had'), ('kernel-fails', 'a kernel gives no measurement on the machine'), ('too-few-boots', 'too few boots were measured'), ('session-over', 'its session ended without it'), ('boot-failed', 'the boot gave no measurement; its outcome says how'), ('measured', 'the boot was measured'), ('late', 'measured, and told after its session had ended'), ('quarantined', 'its machine is quarantined'), ('more-boots', 'more boots are wanted before it is judged'), ('waits', 'it waits for machines or kernels'), ('no-machine', 'no machine can measure it'), ('planned', 'its sessions are planned'), ('judged', 'it was judged'), ('not-measured', 'no machine measured it'), ('not-judged', 'judging it took more than a worker has'), ('power-failed', 'the power could not be switched'), ('power-switched', 'the power was switched'), ('left-out', 'a mail that is not proved was left out'), ('incomplete', 'patches are missing'), ('not-checked', 'its senders are not checked yet'), ('not-trusted', 'a sender is not trusted, or not proved: a person lets it run'), ('trusted', 'all senders are trusted and proved'), ('mail-deleted', 'the archive deleted one of its mails'), ('replaced', 'a newer version has replaced it'), ('approved', 'a person let it run'), ('applied', 'it was applied to its base'), ('does-not-apply', 'it applies to no base that comes into question'), ('refused', 'what it holds is not applied by anybody'), ('waits-for-prerequisite', 'a patch that it needs has not come'), ('tried-again', 'applying it failed for reasons that are not its own; it is tried again'), ('git-failed', 'git failed on it again and again'), ('pull-request', 'a pull request'), ('cover-with-diff', 'a cover letter that holds a diff: the diff is not applied'), ('no-diff', 'marked as a patch, but holds no diff'), ('by-program', 'sent by a program: never a patch'), ('no-sender', 'no usable From address'), ('unusable', 'it could not be read'), ('deleted', 'the archive deleted it'), ('named-by-us', 'it has no usable Message-ID'), ('copy', 'another copy of a mail that is here'), ('twin', 'another mail with this Message-ID and subject was here first'), ('place-taken', 'its place in the series is taken by another mail'), ('unproved', 'its sender is not proved, and its series had been checked'), ('doubted', 'its sender is not proved, but others of that sender are'), ('root-taken', 'another series begins with the same Message-ID'), ('not-grouped', 'it could not be made part of a series'), ('suspected', 'timelines moved'), ('taken-back', 'later points took the suspicion back'), ('machine-event', 'it was an event of a machine'), ('not-seen-again', 'fresh boots do not show it'), ('confirmed', 'judged from interleaved boots'), ('layout-checked', 'its layout is being checked'), ('noise', 'it was noise'), ('layout', 'it was the layout of the image'), ('machine', 'it was the machine'), ('same-change', 'another finding tells of the same change'), ('reported', 'it was told by mail'), ('accepted', 'a person accepted it'), ('acceptance-over', 'its acceptance was withdrawn or has expired'), ('fixed', 'a commit mended it'), ('reopened', 'a person says that it is not mended'), ('searched', 'its revision is being looked for'), ('searched-again', 'its revision is looked for once more'), ('ends-verified', 'both ends were measured again'), ('found', 'the revision was found'), ('range', 'it is one of several revisions'), ('not-found', 'the revision could not be found'), ('nothing-left', 'nothing speaks for a change on the machine any more'), ('asked', 'it was asked'), ('answered', 'it was answered'), ('not-moderated', 'the list is not moderated'), ('held-back', 'a person decides whether it is told'), ('text-changed', 'its finding says something else since it was written'), ('incomplete-report', 'not all that it would have to say is known'), ('rejected', 'a person rejected it'), ('sent', 'it was sent'), ('not-sent', 'it could not be sent'), ('must-wait', 'it is sent later'), ('no-data', 'a kernel gave too few values'), ('undecided', 'the interval allows no verdict'), ('not-decidable', 'more boots would not decide it'), ('not-seen-at-last', 'an early look showed a change, all boots do not'), ('adjusted', 'among so many cells it may be chance'), ('check-failed', 'a check took the verdict away'), ('same-image', "both kernels are the same image: the difference is the machine's own"), ('other-machine', 'the machine changed between the boots of the session')], default='', max_length=40)),
                ('state_since', models.DateTimeField(default=server.core.clock.now)),
                ('trace', models.CharField(db_index=True, default=server.core.states.new_trace, max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('message_id', models.CharField(max_length=200, unique=True)),
                ('tries', models.PositiveIntegerField(default=0)),
                ('not_before', models.DateTimeField(blank=True, null=True)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('report', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='delivery', to='reports.report')),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'ordering': ['-id'],
            },
        ),
        migrations.AddIndex(
            model_name='report',
            index=models.Index(condition=models.Q(('state__in', ['draft', 'approved'])), fields=['state'], name='report_open'),
        ),
        migrations.AddConstraint(
            model_name='report',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['draft', 'approved', 'sent', 'rejected', 'refused'])), name='report_state_known'),
        ),
        migrations.AddConstraint(
            model_name='report',
            constraint=models.CheckConstraint(condition=models.Q(('state', 'refused'), models.Q(models.Q(('body', ''), _negated=True), models.Q(('to', []), _negated=True)), _connector='OR'), name='report_has_text_and_reader'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state__in', ['queued', 'sending', 'failed'])), fields=['state'], name='delivery_open'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state', 'sent')), fields=['sent_at'], name='delivery_sent'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'sending', 'sent', 'failed'])), name='delivery_state_known'),
        ),
    ]
