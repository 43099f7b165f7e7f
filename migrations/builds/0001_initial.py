import django.contrib.postgres.fields
import django.db.models.deletion
import server.core.clock
import server.core.states
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('sources', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ConfigFragment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=60, unique=True)),
                ('arch', models.CharField(blank=True, help_text='Empty: for every architecture.', max_length=20)),
                ('lines', models.TextField(help_text='CONFIG_ lines; each must survive olddefconfig or the build is refused.')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Toolchain',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=60, unique=True)),
                ('compiler', models.CharField(help_text="Program, for make's CC=; with a prefix when it crosses.", max_length=100)),
                ('family', models.CharField(choices=[('gcc', 'GCC and binutils'), ('clang', "clang and LLVM's tools")], default='gcc', max_length=10)),
                ('cross', models.JSONField(blank=True, default=dict, help_text='Prefix of the programs for each foreign architecture: {"arm64": "aarch64-linux-gnu-"}.')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='KernelConfig',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=60, unique=True)),
                ('arch', models.CharField(max_length=20)),
                ('base', models.CharField(default='allnoconfig', help_text='make target the fragment is merged over', max_length=60)),
                ('fragments', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=60), blank=True, default=list, help_text='Names of shared fragments, merged in this order.', size=None)),
                ('fragment', models.TextField(blank=True, help_text='CONFIG_ lines; each must survive olddefconfig or the build is refused.')),
                ('perf', models.BooleanField(default=False, help_text='Build perf of the same tree, too.')),
                ('layout_of', models.ForeignKey(blank=True, help_text='The configuration of which this is another code layout.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='layouts', to='builds.kernelconfig')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Build',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(max_length=20)),
                ('reason', models.TextField(blank=True, default='', help_text='Why it is in this state, for people.')),
                ('reason_code', models.CharField(blank=True, choices=[('attempt-opened', 'an attempt at it was opened'), ('submitted', 'the dispatcher has accepted it'), ('not-submitted', 'the dispatcher could not accept it; it is tried again'), ('arrived', 'an agent has come for it'), ('claimed', 'an agent works at it'), ('ended', 'its agent has ended, with the outcome that the sentence names'), ('infrastructure', 'something of the lab or the service failed, not what was to be tried'), ('stopped', 'its agent was told to stop'), ('lost', 'its agent, its host or its run in the dispatcher is gone'), ('not-dispatched', 'the dispatcher refused it'), ('too-late', 'it took longer than it may'), ('host-trouble', 'its host is out of service, or was changed'), ('work-over', 'its work was over already'), ('given-up', 'too many attempts brought nothing'), ('not-wanted', 'nobody wants it any more'), ('wanted-again', 'somebody wants it again'), ('asked-again', 'a person asked for it again'), ('by-person', 'a person decided it'), ('check-asked', 'the machine is to be checked'), ('moved', 'another machine or another kernel takes its place'), ('edited', 'its configuration or toolchain was edited'), ('does-not-build', 'the kernel does not build'), ('built-again', 'it was built again, as the same kernel'), ('not-reproduced', 'built again, another kernel came out'), ('expired', 'its files were removed'), ('damaged', 'one of its files is damaged or missing'), ('all-booted', 'all boots have a result'), ('same-code', 'both kernels run the same code: there is nothing to measure'), ('kernel-missing', 'one of its kernels cannot be had'), ('kernel-fails', 'a kernel gives no measurement on the machine'), ('too-few-boots', 'too few boots were measured'), ('session-over', 'its session ended without it'), ('boot-failed', 'the boot gave no measurement; its outcome says how'), ('measured', 'the boot was measured'), ('late', 'measured, and told after its session had ended'), ('quarantined', 'its machine is quarantined'), ('more-boots', 'more boots are wanted before it is judged'), ('waits', 'it waits for machines or kernels'), ('no-machine', 'no machine can measure it'), ('planned', 'its sessions are planned'), ('judged', 'it was judged'), ('not-measured', 'no machine measured it'), ('not-judged', 'judging it took more than a worker has'), ('power-failed', 'the power could not be switched'), ('power-switched', 'the power was switched'), ('left-out', 'a mail that is not proved was left out'), ('incomplete', 'patches are missing'), ('not-checked', 'its senders are not checked yet'), ('not-trusted', 'a sender is not trusted, or not proved: a person lets it run'), ('trusted', 'all senders are trusted and proved'), ('mail-deleted', 'the archive deleted one of its mails'), ('replaced', 'a newer version has replaced it'), ('approved', 'a person let it run'), ('applied', 'it was applied to its base'), ('does-not-apply', 'it applies to no base that comes into question'), ('refused', 'what it holds is not applied by anybody'), ('waits-for-prerequisite', 'a patch that it needs has not come'), ('tried-again', 'applying it failed for reasons that are not its own; it is tried again'), ('git-failed', 'git failed on it again and again'), ('pull-request', 'a pull request'), ('cover-with-diff', 'a cover letter that holds a diff: the diff is not applied'), ('no-diff', 'marked as a patch, but holds no diff'), ('by-program', 'sent by a program: never a patch'), ('no-sender', 'no usable From address'), ('unusable', 'it could not be read'), ('deleted', 'the archive deleted it'), ('named-by-us', 'it has no usable Message-ID'), ('copy', 'another copy of a mail that is here'), ('twin', 'another mail with this Message-ID and subject was here first'), ('place-taken', 'its place in the series is taken by another mail'), ('unproved', 'its sender is not proved, and its series had been checked'), ('doubted', 'its sender is not proved, but others of that sender are'), ('root-taken', 'another series begins with the same Message-ID'), ('not-grouped', 'it could not be made part of a series'), ('suspected', 'timelines moved'), ('taken-back', 'later points took the suspicion back'), ('machine-event', 'it was an event of a machine'), ('not-seen-again', 'fresh boots do not show it'), ('confirmed', 'judged from interleaved boots'), ('layout-checked', 'its layout is being checked'), ('noise', 'it was noise'), ('layout', 'it was the layout of the image'), ('machine', 'it was the machine'), ('same-change', 'another finding tells of the same change'), ('reported', 'it was told by mail'), ('accepted', 'a person accepted it'), ('acceptance-over', 'its acceptance was withdrawn or has expired'), ('fixed', 'a commit mended it'), ('reopened', 'a person says that it is not mended'), ('searched', 'its revision is being looked for'), ('searched-again', 'its revision is looked for once more'), ('ends-verified', 'both ends were measured again'), ('found', 'the revision was found'), ('range', 'it is one of several revisions'), ('not-found', 'the revision could not be found'), ('nothing-left', 'nothing speaks for a change on the machine any more'), ('asked', 'it was asked'), ('answered', 'it was answered'), ('not-moderated', 'the list is not moderated'), ('held-back', 'a person decides whether it is told'), ('text-changed', 'its finding says something else since it was written'), ('incomplete-report', 'not all that it would have to say is known'), ('rejected', 'a person rejected it'), ('sent', 'it was sent'), ('not-sent', 'it could not be sent'), ('must-wait', 'it is sent later'), ('no-data', 'a kernel gave too few values'), ('undecided', 'the interval allows no verdict'), ('not-decidable', 'more boots would not decide it'), ('not-seen-at-last', 'an early look showed a change, all boots do not'), ('adjusted', 'among so many cells it may be chance'), ('check-failed', 'a check took the verdict away'), ('same-image', "both kernels are the same image: the difference is the machine's own"), ('other-machine', 'the machine changed between the boots of the session')], default='', max_length=40)),
                ('state_since', models.DateTimeField(default=server.core.clock.now)),
                ('trace', models.CharField(db_index=True, default=server.core.states.new_trace, max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('tree_sha', models.CharField(max_length=40)),
                ('arch', models.CharField(max_length=20)),
                ('recipe', models.CharField(help_text='Hash of what config and toolchain said when it was wanted; edited ones build anew.', max_length=64)),
                ('build_id', models.CharField(blank=True, help_text='GNU build id of vmlinux, as the kernel shows it', max_length=64)),
                ('text_hash', models.CharField(blank=True, default='', help_text="SHA-256 of vmlinux's text: two kernels with the same one run the same code.", max_length=64)),
                ('kernel_hash', models.CharField(blank=True, default='', help_text="SHA-256 of vmlinux's text and data: between two kernels with the same one is nothing to measure.", max_length=64)),
                ('compiler_version', models.CharField(blank=True, max_length=200)),
                ('seconds', models.FloatField(blank=True, null=True)),
                ('given_up', models.BooleanField(default=False, help_text="Failed for our reasons, not the kernel's: another series that needs it tries again.")),
                ('first_error', models.TextField(blank=True, default='', help_text='Of its log, with its lines around.')),
                ('used_at', models.DateTimeField(blank=True, help_text='When it was last wanted or measured.', null=True)),
                ('pinned', models.BooleanField(default=False, help_text='Its files are never removed for room.')),
                ('log_tail', models.TextField(blank=True)),
                ('revision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='builds', to='sources.revision')),
                ('config', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='builds', to='builds.kernelconfig')),
                ('toolchain', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='builds', to='builds.toolchain')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Artifact',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('image', 'bootable kernel image'), ('config', '.config'), ('system-map', 'System.map'), ('modules', 'modules, and those of the benchmarks'), ('perf', 'perf of the same tree'), ('log', 'build log')], max_length=12)),
                ('sha256', models.CharField(db_index=True, max_length=64)),
                ('size', models.PositiveBigIntegerField(help_text='bytes')),
                ('removed_at', models.DateTimeField(blank=True, help_text='When its file was removed.', null=True)),
                ('removal', models.CharField(blank=True, default='', help_text='Why it was removed.', max_length=200)),
                ('checked_at', models.DateTimeField(blank=True, help_text='When its file was last found to be whole.', null=True)),
                ('build', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='artifacts', to='builds.build')),
            ],
            options={
                'ordering': ['build', 'kind'],
                'constraints': [models.UniqueConstraint(fields=('build', 'kind'), name='artifact_once')],
            },
        ),
        migrations.AddIndex(
            model_name='build',
            index=models.Index(condition=models.Q(('state', 'wanted')), fields=['config'], name='build_waiting'),
        ),
        migrations.AddIndex(
            model_name='build',
            index=models.Index(condition=models.Q(('state__in', ['wanted', 'dispatched', 'running'])), fields=['state'], name='build_open'),
        ),
        migrations.AddIndex(
            model_name='build',
            index=models.Index(condition=models.Q(('build_id', ''), _negated=True), fields=['build_id'], name='build_of_id'),
        ),
        migrations.AddIndex(
            model_name='build',
            index=models.Index(condition=models.Q(('text_hash', ''), _negated=True), fields=['text_hash'], name='build_of_text'),
        ),
        migrations.AddIndex(
            model_name='build',
            index=models.Index(fields=['arch', '-id'], name='build_of_arch'),
        ),
        migrations.AddIndex(
            model_name='build',
            index=models.Index(fields=['created_at'], name='build_since'),
        ),
        migrations.AddConstraint(
            model_name='build',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['wanted', 'dispatched', 'running', 'built', 'failed', 'canceled', 'expired'])), name='build_state_known'),
        ),
        migrations.AddConstraint(
            model_name='build',
            constraint=models.UniqueConstraint(fields=('tree_sha', 'config', 'toolchain', 'arch', 'recipe'), name='build_once'),
        ),
        migrations.AddConstraint(
            model_name='build',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'built'), _negated=True), models.Q(('build_id', ''), _negated=True), _connector='OR'), name='built_has_id'),
        ),
    ]
