"""Years of a site's work that is over, written by the database itself, and the few things that are open beside them.

Work number 0 is of just now, and each further one is older: what is added later lies before all that is there already,
as on a site that has run for longer. Ids grow with time.
"""

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connection, models
from django.db.backends.utils import CursorWrapper
from psycopg import sql

from server.core import clock
from server.detection.models import Finding, Timeline
from server.lab.models import Boot, Facts, Machine, Session
from server.reports.models import Delivery, Report
from server.sources.models import Series
from tests.builders import (
    EPOCH,
    build_attempt,
    build_build,
    build_builder,
    build_case,
    build_config,
    build_finding,
    build_list,
    build_machine,
    build_message,
    build_metric,
    build_revision,
    build_series,
    build_session,
    build_tree,
    build_trial,
    build_trial_session,
)

MACHINES = 12
MAILS, SESSIONS, BOOTS = 10, 3, 6
A_YEAR = 2000
# Ids of what is written here: far above what tests make one by one, and room for earlier works below.
NEWEST = 1_000_000

# `w` is one piece of work: s its number among ids, n its age, at its time.
_WORKS = """
WITH c AS (SELECT %(tree)s::bigint AS tree, %(list)s::bigint AS list, %(config)s::bigint AS config,
    %(toolchain)s::bigint AS toolchain, %(case)s::bigint AS kase, %(metric)s::bigint AS metric,
    %(branch)s::bigint AS branch, %(reference)s::bigint AS reference, %(machines)s::bigint[] AS machines,
    %(core_types)s::bigint[] AS core_types, %(builder)s::bigint AS builder),
w AS (SELECT n, %(newest)s - n AS s, %(now)s::timestamptz - interval '365 days' / %(year)s::int * (n + 1) AS at,
    lpad(to_hex(%(newest)s - n), 16, '0') AS trace
    FROM generate_series(%(first)s::int, %(last)s::int - 1) AS n)
"""
_ROWS = (
    # Mails: a cover letter, three patches and what was answered; large ones stand beside the table.
    "INSERT INTO sources_thread (id, stale) SELECT s, false FROM w",
    """INSERT INTO sources_threadmember (name, thread_id)
    SELECT format('m%%s-%%s@x', s, j), s FROM w, generate_series(0, 9) AS j""",
    """INSERT INTO sources_message (id, message_id, blob, raw, kind, reason, subject, sender_name, sender_address,
        sent_at, received_at, in_reply_to, "references", mailing_list_id, authentic, thread_id)
    SELECT s * 10 + j, format('m%%s-%%s@x', s, j), md5(format('%%s-%%s', s, j)),
        convert_to(repeat(md5(format('%%s-%%s', s, j)), 20), 'UTF8'),
        CASE WHEN j = 0 THEN 'cover' WHEN j <= 3 THEN 'patch' ELSE 'other' END, '', format('[PATCH %%s/3] mm', j), 'A',
        format('author-%%s@x', n %% 200), at, at, CASE WHEN j = 0 THEN '' ELSE format('m%%s-0@x', s) END,
        '{}', list, true, s
    FROM c, w, generate_series(0, 9) AS j""",
    """INSERT INTO sources_revision (id, sha, tree_sha, subject, author, committed_at, created_at, tree_id)
    SELECT s * 2 + j, md5(format('r%%s-%%s', s, j)), md5(format('t%%s-%%s', s, j)), 'mm: Change', 'A <a@x>', at,
        at, tree
    FROM c, w, generate_series(0, 1) AS j""",
    # Three of ten were replaced by a newer version, one of ten could not be applied.
    """INSERT INTO sources_series (id, state, reason, state_since, trace, created_at, root_message_id, subject,
        author_name, author_address, version, total, submitted_at, base_commit, change_id, failures, base_id, cover_id,
        head_id, mailing_list_id, checked_at, received_at, tried_at)
    SELECT s, CASE WHEN n %% 10 < 3 THEN 'superseded' WHEN n %% 10 = 3 THEN 'refused' ELSE 'applied' END, '', at, trace,
        at, format('m%%s-0@x', s), 'mm: Change', 'A', format('author-%%s@x', n %% 200), 1, 3, at, '', '', 0, s * 2,
        s * 10, s * 2 + 1, list, at, at, at
    FROM c, w""",
    """INSERT INTO sources_patch (id, index, subject, message_id, revision_id, series_id)
    SELECT s * 3 + j - 1, j, 'mm: Change', s * 10 + j, CASE WHEN j = 3 THEN s * 2 + 1 END, s
    FROM w, generate_series(1, 3) AS j""",
    """INSERT INTO sources_wantedrevision (id, why, detail, created_at, revision_id, tree_id, taken_at)
    SELECT s, 'head', '', at, s * 2, tree, at FROM c, w WHERE n %% 4 = 1""",
    """INSERT INTO sources_headmove (id, kind, decision, at, after_id, branch_id)
    SELECT s, 'advanced', '', at, s * 2, branch FROM c, w WHERE n %% 4 = 1""",
    """INSERT INTO builds_build (id, state, reason, state_since, trace, created_at, tree_sha, arch, recipe, build_id,
        compiler_version, seconds, given_up, log_tail, revision_id, config_id, toolchain_id, kernel_hash, used_at)
    SELECT s * 2 + j, CASE WHEN n > 200 THEN 'expired' ELSE 'built' END, '', at, trace, at,
        md5(format('t%%s-%%s', s, j)),
        'x86_64', 'r', md5(format('b%%s-%%s', s, j)), 'gcc', 100, false, repeat('log ', 40), s * 2 + j, config,
        toolchain, md5(format('k%%s-%%s', s, j)), at
    FROM c, w, generate_series(0, 1) AS j""",
    # Trials: of each series; of idle machines one for two series, of heads one for four.
    """INSERT INTO lab_trial (id, state, reason, state_since, trace, created_at, key, purpose, layout, looks,
        answered_at, priority, tried_at, base_id, patched_id, series_id)
    SELECT s * 3 + j, CASE WHEN j = 0 AND n %% 10 < 3 THEN 'canceled' ELSE 'done' END, '', at, trace, at,
        format('old:%%s:%%s', s, j), (ARRAY['series', 'noise', 'head'])[j + 1], false, '{3}', at, 0, at, s * 2,
        s * 2 + 1, CASE WHEN j = 0 THEN s END
    FROM w, generate_series(0, 2) AS j WHERE j = 0 OR j = 1 AND n %% 2 = 0 OR j = 2 AND n %% 4 = 1""",
    """INSERT INTO lab_trial_machines (trial_id, machine_id)
    SELECT s * 3 + 1, machines[n / 2 %% array_length(machines, 1) + 1] FROM c, w WHERE n %% 2 = 0""",
    """INSERT INTO detection_measuredhead (id, place, observed_at, created_at, branch_id, reference_id,
        revision_id, trial_id)
    SELECT s, s, at, at, branch, reference, s * 2, s * 3 + 2 FROM c, w WHERE n %% 4 = 1""",
    # Sessions: three of each series, and one of each idle machine's trial.
    """INSERT INTO lab_session (id, state, reason, state_since, trace, created_at, base_build_id, machine_id,
        patched_build_id, series_id, purpose, concluded_at, looks, trial_id)
    SELECT s * 4 + j, CASE WHEN j < 3 AND n %% 10 < 3 THEN 'canceled' ELSE 'done' END, '', at, trace, at, s * 2,
        machines[(CASE WHEN j = 3 THEN n / 2 ELSE n + j * 5 END) %% array_length(machines, 1) + 1],
        CASE WHEN j = 3 THEN s * 2 ELSE s * 2 + 1 END, CASE WHEN j < 3 THEN s END,
        CASE WHEN j < 3 THEN 'series' ELSE 'trial' END, at, '{3}', CASE WHEN j < 3 THEN s * 3 ELSE s * 3 + 1 END
    FROM c, w, generate_series(0, 3) AS j WHERE j < 3 OR n %% 2 = 0""",
    """INSERT INTO lab_boot (id, state, reason, state_since, trace, created_at, position, arm, outcome, started_by,
        retries, boot_id, build_id, started_at, ended_at, notes, session_id, facts_id)
    SELECT x.id * 6 + i, 'measured', '', x.state_since, x.trace, x.created_at, i,
        CASE WHEN i %% 2 = 0 THEN 'base' ELSE 'patched' END, 'measured', format('session-%%s-1', x.id), 0,
        md5(format('boot-%%s-%%s', x.id, i)), md5('b'), x.created_at, x.state_since, '[]', x.id,
        CASE WHEN x.machine_id = machines[1] THEN %(seen_virtual)s ELSE %(seen_physical)s END
    FROM c, w JOIN lab_session x ON x.id BETWEEN s * 4 AND s * 4 + 3, generate_series(0, 5) AS i""",
    """INSERT INTO lab_attempt (id, state, reason, state_since, trace, created_at, key, number, adapter, slots, agent,
        progress, session_id, machine_id, log)
    SELECT s * 6 + x.id - s * 4, 'done', '', x.state_since, x.trace, x.created_at, format('session-%%s-1', x.id), 1,
        'jenkins', 1, 'a', '', x.id, x.machine_id, repeat('log ', 40)
    FROM w JOIN lab_session x ON x.id BETWEEN s * 4 AND s * 4 + 3""",
    """INSERT INTO lab_attempt (id, state, reason, state_since, trace, created_at, key, number, adapter, slots, agent,
        progress, build_id, builder_id, log)
    SELECT s * 6 + 4 + j, 'done', 'built', at, trace, at, format('build-%%s-1', s * 2 + j), 1, 'jenkins', 1, 'a', '',
        s * 2 + j, builder, repeat('log ', 40)
    FROM c, w, generate_series(0, 1) AS j""",
    """INSERT INTO detection_comparison (session_id, case_id, metric_id, core_type_id, verdict, reason, base_boots,
        patched_boots, ratio, ratio_low, ratio_high, family_size, min_effect, flags, computed_at)
    SELECT x.id, kase, metric, core_types[array_position(machines, x.machine_id)], 'inconclusive', '', 3, 3, 1.001,
        0.99, 1.01, 48, 0.01, '{}', x.state_since
    FROM c, w JOIN lab_session x ON x.id BETWEEN s * 4 AND s * 4 + 3 WHERE x.state = 'done'""",
    # Each as a point of its machine's timeline, whichever head it is of.
    """INSERT INTO detection_timelinepoint (timeline_id, head_id, comparison_id, place, ratio, ratio_low, ratio_high)
    SELECT t.id, %(newest)s - (n - n %% 4 + 1), y.id, x.id, y.ratio, y.ratio_low, y.ratio_high
    FROM w JOIN lab_session x ON x.id BETWEEN s * 4 AND s * 4 + 3 JOIN detection_comparison y ON y.session_id = x.id
        JOIN detection_timeline t ON t.machine_id = x.machine_id""",
    """INSERT INTO core_transition (trace, subject, subject_id, before, after, reason, at, actor)
    SELECT x.trace, subject, CASE WHEN subject = 'session' THEN x.id ELSE x.machine_id END, 'a',
        CASE WHEN subject = 'session' THEN x.state ELSE 'working' END, '', x.state_since, ''
    FROM w JOIN lab_session x ON x.id BETWEEN s * 4 AND s * 4 + 3,
        unnest(ARRAY['session', 'session', 'machine-state', 'machine-state']) AS subject""",
    # Findings: most were told of; three of ten say nothing, are told to nobody and stay confirmed.
    """INSERT INTO detection_finding (id, state, reason, state_since, trace, created_at, kind, headline, virtual,
        identical, gaps, news, series_id, trial_id)
    SELECT s, CASE WHEN n %% 10 < 3 THEN 'superseded' WHEN n %% 10 < 6 THEN 'confirmed' ELSE 'reported' END, '', at,
        trace, at, CASE WHEN n %% 10 < 6 THEN 'inconclusive' WHEN n %% 10 = 9 THEN 'regressed' ELSE 'unchanged' END,
        'h', false, false, '[]', false, s, s * 3
    FROM w WHERE n %% 10 <> 3""",
    """INSERT INTO detection_findingverdict (verdict, reason, finding_id, uarch_id)
    SELECT 'inconclusive', '', s, %(uarch)s FROM w WHERE n %% 10 <> 3""",
    """INSERT INTO reports_report (id, state, reason, state_since, trace, created_at, subject, body, in_reply_to,
        "references", "to", cc, finding_id, first_of_id, kind, key, composed)
    SELECT s, 'sent', '', at, trace, at, 'Re: mm', repeat('body ', 40), 'm@x', '{}', '{a@x}', '{}', s, s,
        'series', '', ''
    FROM w WHERE n %% 10 >= 6""",
    """INSERT INTO reports_delivery (id, state, reason, state_since, trace, created_at, message_id, tries, sent_at,
        report_id)
    SELECT s, 'sent', '', at, trace, at, format('d%%s@x', s), 1, at, s FROM w WHERE n %% 10 >= 6""",
)


def add_history(first: int, last: int, *, year: int = A_YEAR, machines: int = MACHINES, uarchs: int = 4) -> None:
    """Works `first` to `last` - 1, of which `year` are a year, on so many machines of so many microarchitectures; then
    what PostgreSQL knows of them is refreshed.
    """
    _add_works(first, last, year, _machines(machines, uarchs))


def _add_works(first: int, last: int, year: int, machines: list[Machine]) -> None:
    tree = build_tree("stable")
    build = build_build(build_revision(tree))
    branch = tree.branches.get_or_create(name="master", defaults={"head": build.revision, "head_at": EPOCH})[0]
    _add_timelines(machines, branch=branch, reference=build.revision, case=build_case(), metric=build_metric())
    values: dict[str, Any] = {
        "tree": tree.pk,
        "list": build_message().mailing_list_id,
        "config": build.config_id,
        "toolchain": build.toolchain_id,
        "case": build_case().pk,
        "metric": build_metric().pk,
        "branch": branch.pk,
        "reference": build.revision_id,
        "machines": [machine.pk for machine in machines],
        "builder": build_builder("old-builder").pk,
        "core_types": [machine.core_types.get(name="all").pk for machine in machines],
        "uarch": machines[0].uarch_id,
        "seen_virtual": _facts(virtual=True),
        "seen_physical": _facts(virtual=False),
        "newest": NEWEST,
        "now": clock.now(),
        "first": first,
        "last": last,
        "year": year,
    }
    with connection.cursor() as cursor:
        _let_the_database_fill_in(cursor)
        for rows in _ROWS:
            head, select, rest = rows.partition("SELECT")
            cursor.execute(f"{head}{_WORKS}{select}{rest}", values)
        cursor.execute("ANALYZE")


def _let_the_database_fill_in(cursor: CursorWrapper) -> None:
    """What a row that Python makes would have by itself; for as long as the transaction, or this database, lasts."""
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    written = {rows.split("(")[0].split()[-1] for rows in _ROWS}
    for model in apps.get_models():
        if model._meta.db_table not in written:
            continue
        for field in model._meta.concrete_fields:
            if isinstance(field, models.ForeignKey) or field.primary_key or field.null:
                continue
            default = field.get_db_prep_save(field.get_default(), connection)
            if default is not None:
                names = f'"{model._meta.db_table}" ALTER "{field.column}"'
                filled = sql.SQL("ALTER TABLE {} SET DEFAULT {}").format(sql.SQL(names), sql.Literal(default))
                cursor.execute(filled.as_string(cursor.connection))


def _add_timelines(machines: list[Machine], **fields: Any) -> None:
    for number, machine in enumerate(machines):
        known = {"pk": NEWEST + number, "core_type": machine.core_types.get(name="all")}
        Timeline.objects.get_or_create(machine=machine, defaults={**known, **fields})


def _facts(*, virtual: bool) -> int:
    fields = {"virtual": virtual, "document": {"virtual": virtual}}
    return Facts.objects.get_or_create(sha256=f"{int(virtual):064x}", defaults=fields)[0].pk


def _machines(count: int = MACHINES, uarchs: int = 4) -> list[Machine]:
    """All of them physical, good, and heard of."""
    return [build_machine(f"old-{number}", f"uarch-{number % uarchs}", virtual=False) for number in range(count)]


def add_open_work(each: int = 3) -> None:
    """What a site has under way at any time: `each` of every kind, however long its history is."""
    machines = _machines()
    for number in range(each):
        build_series(state=Series.State.INCOMPLETE)
        build_series(state=Series.State.HELD)
        running = build_session(build_series(), machines[number], state=Session.State.RUNNING)
        running.boots.filter(position=0).update(state=Boot.State.RUNNING)
        build_attempt(running)
        build_trial_session(build_trial(state="measuring"), machines[number + each], state=Session.State.PLANNED)
        build_build(state="wanted")
        draft = build_finding(build_series(), state=Finding.State.CONFIRMED)
        report = _report(draft, Report.State.APPROVED)
        if number:
            Delivery.objects.create(report=report, message_id=f"open-{number}@x", state=Delivery.State.QUEUED)
    # Of these nothing was ever measured, built or received.
    config = build_config("none", arch="none")
    build_machine("none", "none", config=config, enabled=False)
    build_list("none", tree=build_tree("none"))
    build_builder("none")
    later = clock.now() + timedelta(days=1)
    Session.objects.filter(state=Session.State.PLANNED).update(deadline_at=later)


def _report(finding: Finding, state: str) -> Report:
    return Report.objects.create(
        finding=finding,
        first_of=finding,
        state=state,
        subject="Re: mm",
        body="b",
        in_reply_to="m@x",
        to=["a@x"],
        trace=finding.trace,
    )
