"""The canary: a series that the service posts to itself, to see every day that the whole way is open.

It takes the way of all others, from the door of imported mails to the mail server. What is special about it: nobody
else is told of it, its kernels are measured although they run the same code, and it is waited for.
"""

import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime, parseaddr
from pathlib import Path
from uuid import uuid4

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.programs.git import GitError, Repository
from server.core.reasons import Because
from server.core.tasks import enqueue
from server.detection.models import Finding
from server.lab.models import Canary, Trial
from server.lab.trials.life import cancel_trial
from server.reports.models import DeliveryState, Report, ReportState
from server.reports.outbox import queue_delivery
from server.reports.progress import SeriesProgress, series_progress
from server.reports.stages import Stage
from server.sources.messages.mailboxes import Counts, import_mails, mails_in
from server.sources.mirror import mirror
from server.sources.models import MailingList, Series

log = structlog.get_logger(__name__)
POST = "post"
_PLAIN_FILES = {"100644", "100755"}
_LONGEST_DETAIL = 500


@dataclass(frozen=True)
class CanaryAlarm:
    """`since`: when the stage began in which it is overdue, or has failed."""

    what: str
    advice: str
    since: datetime


def the_canary() -> Canary | None:
    """The one of this site, where it has one that is switched on."""
    return Canary.objects.select_related("tree", "machine").filter(enabled=True).first()


def canary_alarm(canary: Canary | None, now: datetime) -> CanaryAlarm | None:
    if canary is None or not canary.is_overdue(now):
        return None
    why = f": {canary.detail}" if canary.detail else ""
    failing, posted = canary.failing_since, canary.posted_at
    if canary.age(now) > canary.limit:
        allowed = int(canary.limit.total_seconds()) // 60
        what = f"the canary is overdue at the stage {canary.stage}, which may take {allowed} minutes{why}"
    elif failing is not None and posted is not None and failing >= posted:
        what = f"the canary did not pass the stage {canary.stage}{why}"
    else:
        what = f"no canary has come through since, the next one is at the stage {canary.stage}{why}"
    return CanaryAlarm(what, f"{settings.SITE_URL}/status/canary/ shows where it stands", canary.stage_since)


def tend_canary() -> None:
    """Follow the one that is under way, post the next one when it is due, and tell the operators once of trouble."""
    with advisory_lock("operations.canary") as free:
        canary = the_canary() if free else None
        if canary is None:
            return
        if canary.stage != POST:
            _follow(canary)
        now = clock.now()
        due = now >= canary.stage_since if canary.stage == POST else _is_given_up(canary, now)
        if due:
            _post_next(canary, now)
        if canary.is_overdue(now):
            _alarm(canary, now)


def _follow(canary: Canary) -> None:
    if canary.series is None:
        canary.series = Series.objects.filter(canary=True, root_message_id=canary.message_id).first()
    if canary.series is None:
        _note(canary, stage="mails", detail="no series was made of its mail yet")
        return
    series = canary.series
    since, found = canary.posted_at or canary.stage_since, series_progress(series)
    for stage, failed in _with_failures(series, found):
        if stage.state == "done" and not failed:
            since = stage.ended_at or since
            continue
        # From the end of the stage before; what began later was late already.
        began = canary.stage_since if stage.name == canary.stage else max(since, canary.stage_since)
        _note(canary, series=series, stage=stage.name, stage_since=began, detail=stage.detail[:_LONGEST_DETAIL])
        if failed and canary.failing_since is None:
            _note(canary, failing_since=clock.now())
        return
    log.info("canary_passed", trace=series.trace, series=series.pk)
    assert canary.posted_at is not None
    after = {"stage": POST, "stage_since": canary.posted_at + canary.every, "detail": ""}
    _note(canary, series=series, passed_at=since, failing_since=None, **after)


def _with_failures(series: Series, found: SeriesProgress) -> Iterator[tuple[Stage, bool]]:
    """Each stage, and whether it can come to no good end: to be over without a verdict, or a mail, is none here."""
    finding = Finding.objects.filter(series=series).select_related("report__delivery").first()
    delivery = getattr(getattr(finding, "report", None), "delivery", None)
    is_sent = delivery is not None and delivery.state == DeliveryState.SENT
    for stage in found.stages:
        failed = stage.state == "failed" or series.state == Series.State.SUPERSEDED
        if stage.state == "done":
            failed |= stage.name == "verdict" and (finding is None or finding.state == Finding.State.INVALID)
            failed |= stage.name == "report" and not is_sent
        yield stage, failed


def _is_given_up(canary: Canary, now: datetime) -> bool:
    """What is overdue when the next one is due is not waited for any longer."""
    posted = canary.posted_at
    return canary.is_overdue(now) and posted is not None and now >= posted + canary.every


def _post_next(canary: Canary, now: datetime) -> None:
    if canary.stage != POST and canary.series is not None:
        for trial in Trial.objects.filter(series=canary.series).exclude(state__in=Trial.FINAL):
            cancel_trial(trial, Because.REPLACED("the next canary is due"))
    if canary.is_overdue(now) and canary.failing_since is None:
        canary.failing_since = now
    try:
        message_id = post_canary(canary, now)
    except DomainError as error:
        log.warning("canary_not_posted", reason=error.message)
        stage_since = canary.stage_since if canary.stage == POST else now
        _note(canary, stage=POST, stage_since=stage_since, detail=error.message[:_LONGEST_DETAIL])
        return
    begun = {"stage": "mails", "stage_since": now, "posted_at": now, "message_id": message_id, "series": None}
    _note(canary, detail="", **begun)


def _note(canary: Canary, **fields: object) -> None:
    for name, value in fields.items():
        setattr(canary, name, value)
    canary.save(update_fields=[*fields, "failing_since"])


def post_canary(canary: Canary, now: datetime) -> str:
    """Store the mail of a new one; returns its Message-ID. DomainError where none can be made of the tree."""
    domain = parseaddr(settings.MAIL_FROM)[1].rpartition("@")[2] or "localhost"
    message_id = f"canary.{now:%Y%m%d%H%M}.{uuid4().hex[:12]}@{domain}"
    mail = _written(canary, now, message_id)
    with transaction.atomic():
        made = {"proof": MailingList.Proof.ARCHIVE, "enabled": False, "moderated": False}
        mailing_list = MailingList.objects.get_or_create(name=MailingList.CANARY, defaults=made)[0]
        if mailing_list.url or mailing_list.address:
            raise DomainError("conflict", f"the list {mailing_list} is watched: its name is for the canary")
        import_mails(mails_in(io.BytesIO(mail), "the canary"), mailing_list, Counts())
        enqueue("sources.group_threads")
    return message_id


def _written(canary: Canary, now: datetime, message_id: str) -> bytes:
    """What git format-patch makes of one more line at the end of the file, in the head that moved last."""
    branch = canary.tree.branches.filter(deleted_at=None, head__isnull=False).order_by("-head_at", "pk").first()
    if branch is None or branch.head is None:
        raise DomainError("not-found", f"the tree {canary.tree} has no branch yet")
    with tempfile.TemporaryDirectory(prefix="tidemark-canary-") as folder:
        return _Draft(mirror(), Path(folder), canary, now).patch(branch.head.sha, message_id)


class _Draft:
    """A commit that is not to stay: its objects lie in a folder beside those of the mirror, until that is removed."""

    def __init__(self, repository: Repository, folder: Path, canary: Canary, now: datetime) -> None:
        self._repository, self._canary, self._now = repository, canary, now
        date = format_datetime(now)
        objects = folder / "objects"
        objects.mkdir()
        self._extra = {
            "GIT_INDEX_FILE": str(folder / "index"),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repository.git_dir.resolve() / "objects"),
        }
        for who in ("AUTHOR", "COMMITTER"):
            own = {"NAME": "Tidemark canary", "EMAIL": canary.to, "DATE": date}
            self._extra |= {f"GIT_{who}_{name}": value for name, value in own.items()}

    def patch(self, base: str, message_id: str) -> bytes:
        file = self._canary.file
        mode, _, rest = self._git("ls-tree", base, "--", f":(literal){file}").decode(errors="replace").partition(" ")
        if mode not in _PLAIN_FILES or not rest.startswith("blob "):
            raise DomainError("not-found", f"{file} is no plain file of {self._canary.tree} at {base[:12]}")
        text = self._git("cat-file", "blob", f"{base}:{file}")
        day = f"{self._now:%Y-%m-%d %H:%M} UTC"
        line = f"/* canary of {day}: this line changes nothing */\n".encode()
        blob = self._word("hash-object", "-w", "--stdin", stdin=text + (b"" if text.endswith(b"\n") else b"\n") + line)
        self._git("read-tree", base)
        self._git("update-index", "--cacheinfo", f"{mode},{blob},{file}")
        told = f"canary of {day}\n\nThe service posts it to itself, to see that the whole way is open.\n"
        commit = self._word("commit-tree", self._word("write-tree"), "-p", base, stdin=told.encode())
        headers = (f"--add-header=Message-ID: <{message_id}>", f"--add-header=To: {self._canary.to}")
        return self._git("format-patch", "-1", "--stdout", "--no-signature", f"--base={base}", *headers, commit)

    def _word(self, *args: str, stdin: bytes = b"") -> str:
        return self._git(*args, stdin=stdin).decode().strip()

    def _git(self, *args: str, stdin: bytes = b"") -> bytes:
        done = self._repository.run(*args, stdin=stdin, extra=self._extra)
        if done.code:
            raise GitError("git-failed", f"git {args[0]}: {done.stderr.strip()[:300]}", stderr=done.stderr)
        return done.stdout


def _alarm(canary: Canary, now: datetime) -> None:
    """One mail to the operators, until one has come through again."""
    if canary.failing_since is None:
        _note(canary, failing_since=now)
    alarm = canary_alarm(canary, now)
    assert alarm is not None
    assert canary.failing_since is not None
    if not canary.operators:
        return
    body = (
        f"{alarm.what}\n\n{alarm.advice}\n\n-- \nWritten by a program (Tidemark), once until a canary comes through.\n"
    )
    with transaction.atomic():
        report, is_new = Report.objects.get_or_create(
            key=f"{Report.OF_CANARY}{canary.failing_since.isoformat()}",
            defaults={
                "kind": Report.Kind.NOTICE,
                "state": ReportState.APPROVED,
                "released": True,
                "subject": f"[tidemark] canary overdue: {canary.stage}",
                "body": body,
                "composed": body,
                "to": [canary.operators],
            },
        )
        if is_new:
            log.error("canary_overdue", stage=canary.stage, detail=canary.detail)
            report.record_creation()
            queue_delivery(report=report)
