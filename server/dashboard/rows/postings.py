"""Mails, patches and series as pages show them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any
from urllib.parse import quote, urlsplit

from django.db.models import Case, Count, Exists, F, OuterRef, QuerySet, Sum, When

from server.core.addresses import without_credentials
from server.core.reasons import Because
from server.dashboard.rows.host_status import people_with
from server.dashboard.rows.watchers import CommitLine, commit
from server.sources.mail.parser import is_unknown
from server.sources.measure_rules import DEFAULT_PATTERN, matches_path
from server.sources.models import MeasureRule, Message, Patch, Series
from server.sources.series.requests import may_be_approved, posting_mark
from server.sources.supersession import replaced_of_others
from server.sources.trust.senders import SenderRow, mails_of, sender_rows, unproved_mails


def archive_link(inbox_url: str, message_id: str) -> str:
    """Where the archive shows this mail, or nothing when the inbox has no address that a browser may open."""
    try:
        scheme = urlsplit(inbox_url).scheme
    except ValueError:
        return ""
    if scheme not in ("http", "https"):
        return ""
    return f"{without_credentials(inbox_url).rstrip('/')}/{quote(message_id, safe='@')}/"


@dataclass(frozen=True, slots=True)
class MailRow:
    id: int
    message_id: str
    subject: str
    sender: str
    kind: str
    kind_label: str
    reason: str
    mailing_list: str
    received_at: datetime
    link: str


def mail_rows(messages: "QuerySet[Message]") -> tuple[MailRow, ...]:
    """One query; what the mails hold is not read."""
    return tuple(
        MailRow(
            id=row.pk,
            message_id=row.message_id,
            subject=row.subject,
            sender=row.sender_name or row.sender_address,
            kind=row.kind,
            kind_label=Message.Kind(row.kind).label,
            reason=row.reason,
            mailing_list=row.mailing_list.name,
            received_at=row.received_at,
            link=archive_link(row.mailing_list.url, row.message_id),
        )
        for row in messages.select_related("mailing_list").defer(*Message.LONG)
    )


# Whoever posts again and again makes as many as there are mails.
_MOST_OLDER = 20


@dataclass(frozen=True, slots=True)
class OtherVersion:
    id: int
    mark: str
    subject: str
    state: str
    state_label: str


@dataclass(frozen=True, slots=True)
class OlderVersions:
    """The newest of those that a version replaced; `unlisted` counts the others."""

    rows: tuple[OtherVersion, ...]
    unlisted: int


_VERDICTS = {"unchanged": "no change"}


def version_of(series: Series) -> OtherVersion:
    """Of one that was read with the `kind` of its finding, and whether that stands."""
    kind = "" if getattr(series, "withdrawn", False) else getattr(series, "kind", None)
    return OtherVersion(series.pk, series.mark, series.subject, series.state, label_of(series, kind or ""))


def label_of(series: Series, verdict: str = "") -> str:
    """The state for people; a held series waits for nobody before its senders were checked.

    `verdict` is that of its finding: of what was judged nobody wants to know that it could be applied.
    """
    if verdict and series.state == Series.State.APPLIED:
        return f"judged: {_VERDICTS.get(verdict, verdict)}"
    if series.state == Series.State.HELD and series.checked_at is None:
        return "senders not checked yet"
    return Series.State(series.state).label


def newer_and_older(series: Series) -> tuple[OtherVersion | None, OlderVersions]:
    """What replaced `series`, and what it replaced; three queries at most, with `superseded_by` read already."""
    newer = series.superseded_by
    older = _judged(Series.objects.filter(superseded_by=series)).order_by("-version", "-minor", "-id")
    rows = tuple(version_of(row) for row in older.defer("trailers", "prerequisites")[:_MOST_OLDER])
    unlisted = older.count() - len(rows) if len(rows) == _MOST_OLDER else 0
    newest = _judged(Series.objects.filter(pk=newer.pk)).defer("trailers", "prerequisites").get() if newer else None
    return version_of(newest) if newest else None, OlderVersions(rows, unlisted)


def _judged(series: "QuerySet[Series]") -> "QuerySet[Any, Any]":
    withdrawn = Case(When(finding__state="invalid", then=True), default=False)
    return series.annotate(kind=F("finding__kind"), withdrawn=withdrawn)


PERMISSION = "sources.change_series"
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Approval:
    """`people` counts those who may; `again` tells that the series was refused and would be tried once more.

    `replaced` tells that a version stands in its place which nobody proved. `unproved` names mails that anybody may
    have written in their sender's name, the first of them; `more` counts the others. `ends` are series of other authors
    that this one would replace, `seen` is what an approval is of.
    """

    people: int
    again: bool
    replaced: bool
    unproved: tuple[str, ...]
    more: int
    ends: tuple[Series, ...]
    seen: str


def approval_of(series: Series) -> Approval | None:
    """None where there is nothing to approve. Pages ask before they read the mails, so that they show all it is of."""
    if not may_be_approved(series) or series.patches.count() < series.total:
        return None
    seen = posting_mark(series)
    state = Series.State(series.state)
    unproved = unproved_mails(series, _MOST_NAMED)
    return Approval(
        people=people_with(PERMISSION),
        again=state == Series.State.REFUSED,
        replaced=state == Series.State.SUPERSEDED,
        unproved=unproved.shown,
        more=unproved.more,
        ends=tuple(replaced_of_others(series)),
        seen=seen,
    )


# A series that changes more files than this is told by the first ones.
_MOST_CHANGED_PATHS = 300
_LISTS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """`because` has the rules, as pattern and note; none where the rule was changed after the series was applied."""

    benchmark: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """`decided` is False while the series is not applied: then the rows are what the rules ask for now."""

    rows: tuple[MeasuredRow, ...]
    decided: bool


def measured_of(series: Series) -> Measured:
    """Two queries; `series` was read with its base and the tree of that, which asks for benchmarks of its own."""
    lists = Patch.objects.filter(series=series).order_by("index").values_list("message__paths", flat=True)
    # A mail may name thousands: they are not all read at once.
    each = chain.from_iterable(lists.iterator(chunk_size=_LISTS_AT_ONCE))
    paths: dict[str, None] = {}
    for path in each:
        paths[path] = None
        if len(paths) == _MOST_CHANGED_PATHS:
            break
    rules = [rule for rule in MeasureRule.objects.filter(enabled=True) if _applies(rule, paths)]
    decided = bool(series.benchmarks)
    names = series.benchmarks if decided else sorted({name for rule in rules for name in rule.benchmarks})
    tree = series.base.tree if series.base else None
    of_tree = tree.benchmarks if tree else []
    rows = (
        MeasuredRow(name, (*_because(name, rules), *([f"the tree {tree}"] if name in of_tree else [])))
        for name in sorted({*names, *of_tree})
    )
    return Measured(tuple(rows), decided)


def _applies(rule: MeasureRule, paths: Iterable[str]) -> bool:
    return rule.pattern == DEFAULT_PATTERN or any(matches_path(rule.pattern, path) for path in paths)


def _because(name: str, rules: Sequence[MeasureRule]) -> tuple[str, ...]:
    return tuple(_told(rule) for rule in rules if name in rule.benchmarks)


def _told(rule: MeasureRule) -> str:
    if rule.pattern == DEFAULT_PATTERN:
        return "the default set"
    return f"{rule.pattern} ({rule.note})" if rule.note else rule.pattern


# Longer series are counted and summed up; the API has all of them.
MOST_PATCHES = 200
_MOST_PATHS = 40
MOST_TRAILERS = 60
# Of a path or a trailer; both may be as long as the mail.
_LONGEST_LINE = 240


@dataclass(frozen=True, slots=True)
class PatchRow:
    """`message` is the number of its mail's row, `unlisted` counts the paths beyond those in `paths`.

    `proved` tells whether the mail is from its sender; None: not checked.
    """

    index: int
    subject: str
    message: int
    message_id: str
    link: str
    deleted: bool
    proved: bool | None
    sha: str
    author: str
    files: int
    insertions: int
    deletions: int
    paths: tuple[str, ...]
    unlisted: int
    trailers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Patches:
    """The first patches of a series; `count` and the sums are over all of them."""

    rows: tuple[PatchRow, ...]
    count: int
    insertions: int
    deletions: int

    @property
    def hidden(self) -> int:
        return self.count - len(self.rows)


def patches_of(series: Series) -> Patches:
    """Two queries, however many patches; `series` was read with its list."""
    sums = {"count": Count("id"), **{name: Sum(f"message__{name}", default=0) for name in ("insertions", "deletions")}}
    whole = Patch.objects.filter(series=series).order_by().aggregate(**sums)
    query = Patch.objects.filter(series=series).select_related("message", "revision").order_by("index")
    # A patch may change as many files as fit into its mail; the database cuts the list of them.
    first = {"first_paths": F(f"message__paths__0_{_MOST_PATHS}"), "count_of_paths": F("message__paths__len")}
    unread = ["message__trailers", *(f"message__{name}" for name in Message.LONG)]
    rows = list(query.defer(*unread).annotate(**first)[:MOST_PATCHES])
    return Patches(tuple(_row(patch, series.mailing_list.url) for patch in rows), **whole)


def _row(patch: Patch, inbox: str) -> PatchRow:
    mail = patch.message
    return PatchRow(
        index=patch.index,
        subject=patch.subject,
        message=patch.message_id,
        message_id=mail.message_id,
        link=archive_link(inbox, mail.message_id),
        deleted=mail.kind == Message.Kind.DELETED,
        proved=mail.authentic,
        sha=patch.revision.sha if patch.revision else "",
        author=mail.author_name or mail.author_address,
        files=mail.files,
        insertions=mail.insertions,
        deletions=mail.deletions,
        paths=shown_lines(vars(patch)["first_paths"] or (), _MOST_PATHS),
        unlisted=max((vars(patch)["count_of_paths"] or 0) - _MOST_PATHS, 0),
        trailers=shown_lines(patch.trailers, MOST_TRAILERS),
    )


def shown_lines(lines: Sequence[str], most: int) -> tuple[str, ...]:
    """The first lines, each cut where it is longer than anybody reads."""
    return tuple(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …" for line in lines[:most])


_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Unused:
    """Copies of used mails from other lists, and discussion, are only counted."""

    rows: tuple[MailRow, ...]
    count: int
    copies: int
    discussion: int

    @property
    def hidden(self) -> int:
        return self.count - len(self.rows)


def unused_mails(series: Series) -> Unused:
    threads = set(mails_of(series).exclude(thread=None).values_list("thread_id", flat=True))
    thread = Message.objects.filter(thread__in=threads)
    used = Exists(Patch.objects.filter(message=OuterRef("pk"))) | Exists(Series.objects.filter(cover=OuterRef("pk")))
    left = thread.exclude(kind=Message.Kind.OTHER, reason_code="").exclude(reason_code=Because.COPY).exclude(used)
    return Unused(
        rows=mail_rows(left.order_by("id")[:_SHOWN]),
        count=left.count(),
        copies=thread.filter(reason_code=Because.COPY).count(),
        discussion=thread.filter(kind=Message.Kind.OTHER, reason_code="").count(),
    )


# What people write there are a few short words.
_MOST_MARKS = 10
_LONGEST_MARK = 60


@dataclass(frozen=True, slots=True)
class AppliedBase:
    """`certain` is False where nothing in the mails names the base, None for series of before that was noted."""

    commit: CommitLine
    how: str
    certain: bool | None


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Which kernels the series asks for, and why these."""

    wanted_base: str
    change_id: str
    prerequisites: tuple[str, ...]
    unknown_needs: tuple[str, ...]
    base: AppliedBase | None
    head: CommitLine | None
    measured: Measured


def kernel_facts(series: Series) -> KernelFacts:
    """`series` was read with its base, its head and their trees."""
    base = commit(series.base)
    return KernelFacts(
        wanted_base=series.base_commit,
        change_id=series.change_id,
        prerequisites=tuple(need for need in series.prerequisites if not is_unknown(need)),
        unknown_needs=tuple(need.partition(":")[2] for need in series.prerequisites if is_unknown(need)),
        base=AppliedBase(base, series.base_how, series.base_certain) if base else None,
        head=commit(series.head),
        measured=measured_of(series),
    )


@dataclass(frozen=True, slots=True)
class SenderFacts:
    received_at: datetime
    checked_at: datetime | None
    senders: tuple[SenderRow, ...]
    unused: Unused


def sender_facts(series: Series) -> SenderFacts:
    return SenderFacts(series.received_at, series.checked_at, sender_rows(series), unused_mails(series))


def shown_trailers(series: Series) -> tuple[str, ...]:
    return shown_lines(series.trailers, MOST_TRAILERS)


def marks_of(series: Series) -> tuple[str, ...]:
    """The words of the [PATCH ...] mark that are no number; those stored by older versions may be thousands."""
    words = (*(["RFC"] if series.rfc else []), *(["RESEND"] if series.resend else []), *series.tags)
    return tuple(word[:_LONGEST_MARK] for word in words[:_MOST_MARKS])
