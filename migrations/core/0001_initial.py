import server.core.clock
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Tries',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='What is tried, by whom.', max_length=90, unique=True)),
                ('count', models.PositiveIntegerField()),
                ('since', models.DateTimeField(db_index=True)),
            ],
            options={
                'verbose_name_plural': 'tries',
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(db_index=True, help_text='The same for a token and those it is renewed by.', max_length=100)),
                ('prefix', models.CharField(max_length=12, unique=True)),
                ('digest', models.CharField(max_length=64)),
                ('scope', models.CharField(choices=[('machine', 'claims and uploads for the machine named in `subject`'), ('builder', 'claims and uploads builds for the builder named in `subject`'), ('control', 'claims power cycles for the control host named in `subject`')], max_length=10)),
                ('subject', models.CharField(help_text='Machine or builder that holds it.', max_length=100)),
                ('expires_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=server.core.clock.now)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('scope__in', ['machine', 'builder', 'control'])), name='token_scope_known')],
            },
        ),
        migrations.CreateModel(
            name='Begun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='The task and its arguments.', max_length=200)),
                ('at', models.DateTimeField(default=server.core.clock.now)),
                ('given_up', models.BooleanField(default=False, help_text='It is one of those for which the task was given up.')),
            ],
            options={
                'verbose_name_plural': 'begun',
                'indexes': [models.Index(fields=['key', 'at'], name='begun_of_task')],
            },
        ),
        migrations.CreateModel(
            name='Transition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('trace', models.CharField(db_index=True, max_length=16)),
                ('subject', models.CharField(help_text='Kind of row: series, build, session, boot ...', max_length=30)),
                ('subject_id', models.BigIntegerField()),
                ('before', models.CharField(blank=True, max_length=20)),
                ('after', models.CharField(max_length=20)),
                ('reason', models.TextField(blank=True)),
                ('reason_code', models.CharField(blank=True, choices=[('attempt-opened', 'an attempt at it was opened'), ('submitted', 'the dispatcher has accepted it'), ('not-submitted', 'the dispatcher could not accept it; it is tried again'), ('arrived', 'an agent has come for it'), ('claimed', 'an agent works at it'), ('ended', 'its agent has ended, with the outcome that the sentence names'), ('infrastructure', 'something of the lab or the service failed, not what was to be tried'), ('stopped', 'its agent was told to stop'), ('lost', 'its agent, its host or its run in the dispatcher is gone'), ('not-dispatched', 'the dispatcher refused it'), ('too-late', 'it took longer than it may'), ('host-trouble', 'its host is out of service, or was changed'), ('work-over', 'its work was over already'), ('given-up', 'too many attempts brought nothing'), ('not-wanted', 'nobody wants it any more'), ('wanted-again', 'somebody wants it again'), ('asked-again', 'a person asked for it again'), ('by-person', 'a person decided it'), ('check-asked', 'the machine is to be checked'), ('moved', 'another machine or another kernel takes its place'), ('edited', 'its configuration or toolchain was edited'), ('does-not-build', 'the kernel does not build'), ('built-again', 'it was built again, as the same kernel'), ('not-reproduced', 'built again, another kernel came out'), ('expired', 'its files were removed'), ('damaged', 'one of its files is damaged or missing'), ('all-booted', 'all boots have a result'), ('same-code', 'both kernels run the same code: there is nothing to measure'), ('kernel-missing', 'one of its kernels cannot be had'), ('kernel-fails', 'a kernel gives no measurement on the machine'), ('too-few-boots', 'too few boots were measured'), ('session-over', 'its session ended without it'), ('boot-failed', 'the boot gave no measurement; its outcome says how'), ('measured', 'the boot was measured'), ('late', 'measured, and told after its session had ended'), ('quarantined', 'its machine is quarantined'), ('more-boots', 'more boots are wanted before it is judged'), ('waits', 'it waits for machines or kernels'), ('no-machine', 'no machine can measure it'), ('planned', 'its sessions are planned'), ('judged', 'it was judged'), ('not-measured', 'no machine measured it'), ('not-judged', 'judging it took more than a worker has'), ('power-failed', 'the power could not be switched'), ('power-switched', 'the power was switched'), ('left-out', 'a mail that is not proved was left out'), ('incomplete', 'patches are missing'), ('not-checked', 'its senders are not checked yet'), ('not-trusted', 'a sender is not trusted, or not proved: a person lets it run'), ('trusted', 'all senders are trusted and proved'), ('mail-deleted', 'the archive deleted one of its mails'), ('replaced', 'a newer version has replaced it'), ('approved', 'a person let it run'), ('applied', 'it was applied to its base'), ('does-not-apply', 'it applies to no base that comes into question'), ('refused', 'what it holds is not applied by anybody'), ('waits-for-prerequisite', 'a patch that it needs has not come'), ('tried-again', 'applying it failed for reasons that are not its own; it is tried again'), ('git-failed', 'git failed on it again and again'), ('pull-request', 'a pull request'), ('cover-with-diff', 'a cover letter that holds a diff: the diff is not applied'), ('no-diff', 'marked as a patch, but holds no diff'), ('by-program', 'sent by a program: never a patch'), ('no-sender', 'no usable From address'), ('unusable', 'it could not be read'), ('deleted', 'the archive deleted it'), ('named-by-us', 'it has no usable Message-ID'), ('copy', 'another copy of a mail that is here'), ('twin', 'another mail with this Message-ID and subject was here first'), ('place-taken', 'its place in the series is taken by another mail'), ('unproved', 'its sender is not proved, and its series had been checked'), ('doubted', 'its sender is not proved, but others of that sender are'), ('root-taken', 'another series begins with the same Message-ID'), ('not-grouped', 'it could not be made part of a series'), ('suspected', 'timelines moved'), ('taken-back', 'later points took the suspicion back'), ('machine-event', 'it was an event of a machine'), ('not-seen-again', 'fresh boots do not show it'), ('confirmed', 'judged from interleaved boots'), ('layout-checked', 'its layout is being checked'), ('noise', 'it was noise'), ('layout', 'it was the layout of the image'), ('machine', 'it was the machine'), ('same-change', 'another finding tells of the same change'), ('reported', 'it was told by mail'), ('accepted', 'a person accepted it'), ('acceptance-over', 'its acceptance was withdrawn or has expired'), ('fixed', 'a commit mended it'), ('reopened', 'a person says that it is not mended'), ('searched', 'its revision is being looked for'), ('searched-again', 'its revision is looked for once more'), ('ends-verified', 'both ends were measured again'), ('found', 'the revision was found'), ('range', 'it is one of several revisions'), ('not-found', 'the revision could not be found'), ('nothing-left', 'nothing speaks for a change on the machine any more'), ('asked', 'it was asked'), ('answered', 'it was answered'), ('not-moderated', 'the list is not moderated'), ('held-back', 'a person decides whether it is told'), ('text-changed', 'its finding says something else since it was written'), ('incomplete-report', 'not all that it would have to say is known'), ('rejected', 'a person rejected it'), ('sent', 'it was sent'), ('not-sent', 'it could not be sent'), ('must-wait', 'it is sent later'), ('no-data', 'a kernel gave too few values'), ('undecided', 'the interval allows no verdict'), ('not-decidable', 'more boots would not decide it'), ('not-seen-at-last', 'an early look showed a change, all boots do not'), ('adjusted', 'among so many cells it may be chance'), ('check-failed', 'a check took the verdict away'), ('same-image', "both kernels are the same image: the difference is the machine's own"), ('other-machine', 'the machine changed between the boots of the session')], default='', max_length=40)),
                ('actor', models.CharField(blank=True, default='', help_text='Who did it; empty: the service itself.', max_length=150)),
                ('at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['subject', 'subject_id', 'id'], name='transition_subject')],
            },
        ),
    ]
