"""The auditor: after a run, everything that was put in is looked for where it must be."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

from bench.chaos.compared import Cell, Differences, Numbers, compare_once, compare_values
from bench.chaos.host_program import Entry, read_journal
from bench.chaos.load import share_answered
from bench.chaos.recovery import MOST_SECONDS
from bench.chaos.run import Struck, Told
from bench.chaos.stage import HOSTS, Stage
from bench.chaos.study import NAME, SLOWED
from bench.replay.report import Line
from bench.replay.tries import recomputed
from server.builds.expiry import check_artifacts, expire_artifacts, nameless_files
from server.builds.models import Artifact
from server.builds.storage import FolderStore, artifact_store, forget_interrupted_uploads
from server.detection.models import Finding
from server.lab.models import Attempt, Boot
from server.lab.trials.kernels import builds_in_use
from server.reports.models import Delivery, DeliveryState, Report
from server.results.models import Measurement
from server.sources.models import Branch, Message, Revision, Series

_LEAST_ANSWERED = 0.99
_TWO_DAYS = 2 * 86400


def audited(stage: Stage, told: Told) -> list[Line]:
    entries = [entry for host in HOSTS for entry in read_journal(stage.journal(host))]
    return [
        *_mails(told),
        _heads(told),
        *_values(entries),
        _images(entries),
        _files(),
        *_findings(told),
        _reports(stage),
        Line("rows that do not come to their end", "0", str(told.left or 0), not told.left),
        recomputed(),
        _recovery(told.struck),
        *_reads(told),
    ]


def _line(what: str, count: int, differences: Differences) -> Line:
    return Line(f"{what}: {count}", "each there once", str(differences), count > 0 and differences.are_none)


def _mails(told: Told) -> Iterator[Line]:
    there = Message.objects.values_list("message_id", flat=True)
    yield _line("mails posted", len(told.load.mails), compare_once(told.load.mails, there))
    posted = {one.root: one for one in told.load.series}
    rows = list(Series.objects.values_list("root_message_id", "total", "state"))
    differences = compare_once(posted, (root for root, _, _ in rows))
    differences.changed = [
        f"{root}: {state} of {total}"
        for root, total, state in rows
        if root in posted and (state != Series.State.APPLIED or total != posted[root].patches)
    ]
    yield _line("series posted, applied", len(posted), differences)


def _heads(told: Told) -> Line:
    there = Revision.objects.filter(sha__in=told.load.heads).values_list("sha", flat=True)
    differences = compare_once(told.load.heads, there)
    last = Branch.objects.get(tree__name=NAME, name="master").head
    if last is None or last.sha != told.load.heads[-1]:
        differences.changed.append("the last one is not the branch's head")
    return _line("heads pushed", len(told.load.heads), differences)


def _values(entries: Sequence[Entry]) -> Iterator[Line]:
    sessions = dict(Attempt.objects.exclude(session=None).values_list("key", "session_id"))
    sent: defaultdict[Cell, set[Numbers]] = defaultdict(set)
    acknowledged: list[Cell] = []
    measured = set(Boot.objects.filter(state=Boot.State.MEASURED).values_list("session_id", "position"))
    for entry in entries:
        if entry.kind not in {"sent", "stored", "known"}:
            continue
        place = (sessions.get(entry.key, 0), entry.position)
        cells = {(*place, *names): numbers for *names, numbers in entry.values}
        for cell, numbers in cells.items():
            sent[cell].add(numbers)  # type: ignore[index]
        if entry.kind == "stored" or (entry.kind == "known" and place in measured):
            acknowledged += cells  # type: ignore[arg-type]
    stored = list(_stored())
    yield _line("values acknowledged", len(set(acknowledged)), compare_values(sent, acknowledged, stored))
    empty = measured - {cell[:2] for cell, _ in stored}
    yield Line("boots that are measured, without values", "0", str(len(empty)), not empty)


def _stored() -> Iterator[tuple[Cell, Numbers]]:
    rows = Measurement.objects.order_by().values_list(
        "boot__session_id", "boot__position", "case__benchmark__name", "case__name", "metric__name",
        "core_type__name", "values",
    )  # fmt: skip
    for session, position, benchmark, case, metric, core, values in rows.iterator():
        yield (session, position, f"{benchmark}/{case}", metric, core), tuple(values)


def _images(entries: Sequence[Entry]) -> Line:
    """Of files that were acknowledged, those that a build names."""
    put = {entry.key for entry in entries if entry.kind == "image"}
    named = set(Artifact.objects.filter(removed_at=None).values_list("sha256", flat=True))
    there = [stored.sha256 for stored in artifact_store().every()]
    differences = compare_once(named, there, others=True)
    differences.unknown = sorted(set(there) - put - named)
    differences.changed = check_artifacts(seconds=float("inf"), everything=True)[1]
    return _line("files of builds", len(named), differences)


def _files() -> Line:
    """Files that no build names, and what was cut off on its way: housekeeping finds them once they are old."""
    store = artifact_store()
    assert isinstance(store, FolderStore)
    old = time.time() - _TWO_DAYS
    named = set(Artifact.objects.filter(removed_at=None).values_list("sha256", flat=True))
    for stored in store.every():
        if stored.sha256 not in named:
            os.utime(store.place(stored.sha256), (old, old))
    for part in (store.root / "incoming").glob("*"):
        with suppress(FileNotFoundError):
            os.utime(part, (old, old))
    orphans = len(nameless_files())
    forget_interrupted_uploads()
    expire_artifacts(builds_in_use())
    left = len(nameless_files()) + sum(1 for _ in (store.root / "incoming").glob("*"))
    return Line("orphan files after housekeeping", "0", f"{left} ({orphans} before)", left == 0)


def _findings(told: Told) -> Iterator[Line]:
    """Each series is said to be slower on one machine, and on no other."""
    kinds = Counter(Finding.objects.exclude(series=None).values_list("kind", flat=True))
    slower = kinds[Finding.Kind.REGRESSED]
    told_kinds = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    wanted = f"{len(told.load.series)} regressed"
    yield Line("findings of series", wanted, told_kinds, slower == kinds.total() == len(told.load.series))
    elsewhere = Finding.objects.exclude(series=None).filter(verdicts__verdict="regressed")
    wrong = elsewhere.exclude(verdicts__uarch__name=SLOWED).count()
    yield Line("findings that blame another machine", "0", str(wrong), wrong == 0)


def _reports(stage: Stage) -> Line:
    """Each report that was to leave is at the mail server under its Message-ID, and nothing else is."""
    mails = stage.sink.mails()
    deliveries = [f"<{name}>" for name in Delivery.objects.values_list("message_id", flat=True)]
    differences = compare_once(deliveries, (mail.message_id for mail in mails))
    regressed = Finding.objects.filter(kind=Finding.Kind.REGRESSED, state__in=Finding.STANDING).exclude(series=None)
    sent = Report.objects.filter(delivery__state=DeliveryState.SENT, first_of__in=regressed).count()
    differences.lost += [f"a report of {regressed.count() - sent} findings"] * (regressed.count() - sent)
    differences.lost += [str(one) for one in Delivery.objects.exclude(state=DeliveryState.SENT)]
    again = sum(mail.arrivals - 1 for mail in mails)
    line = _line("reports mailed", len(mails), differences)
    more = f"; {again} handed over again under the same Message-ID" if again else ""
    return Line(line.what, line.expected, f"{line.seen}{more}", line.right)


def _recovery(struck: Sequence[Struck]) -> Line:
    slowest = max(struck, key=lambda one: one.seconds, default=None)
    told = f"{slowest.seconds:.0f} s: {slowest.strike.name}" if slowest else "nothing was struck"
    right = slowest is not None and slowest.seconds <= MOST_SECONDS
    return Line("longest until all goes on", f"<= {MOST_SECONDS:.0f} s", told, right)


def _reads(told: Told) -> Iterator[Line]:
    answered, asked, failed = share_answered(told.reads, told.stops)
    share = answered / asked if asked else 0.0
    pages = Counter(f"{read.path} {read.status or 'no answer'}" for read in failed)
    more = f": {', '.join(f'{count} x {page}' for page, count in pages.most_common(3))}" if failed else ""
    seen = f"{100 * share:.2f} % of {asked}{more}"
    yield Line("reads answered while the database runs", f">= {_LEAST_ANSWERED:.0%}", seen, share >= _LEAST_ANSWERED)

    slow = sorted(read.seconds for read in told.reads if read not in failed)
    if slow:
        p50, p99 = slow[len(slow) // 2], slow[int(len(slow) * 0.99)]
        yield Line("  seconds of a read, half and 99 %", "", f"{p50:.2f}, {p99:.2f}", right=True)
