"""Which senders of a series are trusted, and by what: the site's own list, or what they maintain."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import structlog
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Lower

from server.core import clock
from server.core.errors import DomainError
from server.core.programs.git import Repository
from server.sources.mail.postings import parse_subject
from server.sources.measure_rules import matches_text
from server.sources.mirror import mirror
from server.sources.models import Branch, Message, Series, Tree, TrustedSender

# The kernel's has 0.9 MB and 28 000 lines.
_MOST_BYTES = 8 * 1024 * 1024
_ENTRY = re.compile(r"([A-Z]):\s*(.*)")
_ADDRESS = re.compile(r"<([^<>\s@]+@[^<>\s@]+)>|^([^<>\s@]+@[^<>\s@]+)$")
# What stands behind a list that takes mails of its own people alone.
_CLOSED = "subscribers-only"
# N: is a regular expression. Those that could take long are left out: fewer people are trusted, nobody waits.
_SIMPLE_EXPRESSION = re.compile(r"(?:(?:\\.|\[\^?[^\]\\]{1,40}\]|[^\\\[\](){}|*+?])[*+?]?)+")
_MOST_REPEATS = 2
_LONGEST_PATH = 1024


@dataclass(frozen=True)
class Section:
    """One entry of the list: who (addresses in lower case), and what is theirs: patterns, exceptions, expressions.

    `lists` are those that anybody may write to; `maintainers` and `reviewers` are addresses as they are written.
    """

    title: str
    people: frozenset[str]
    files: tuple[str, ...]
    excluded: tuple[str, ...]
    names: tuple[re.Pattern[str], ...]
    lists: tuple[str, ...] = ()
    maintainers: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        if any(_covers(pattern, path) for pattern in self.excluded):
            return False
        if any(_covers(pattern, path) for pattern in self.files):
            return True
        return len(path) <= _LONGEST_PATH and any(name.search(path) for name in self.names)


def _covers(pattern: str, path: str) -> bool:
    """A pattern fits the beginning of a path; unless it names a directory, both must lie equally deep.

    `*` and `?` take any character, a slash too, so that the depth decides; `**` frees from it.
    """
    if pattern.endswith("/"):
        return matches_text(f"{pattern}*", path)
    if "**" in pattern:
        return matches_text(f"{pattern.replace('**', '*')}*", path)
    if path.startswith(f"{pattern}/"):
        return True
    return pattern.count("/") == path.count("/") and matches_text(f"{pattern}*", path)


def read_maintainers(text: str) -> tuple[Section, ...]:
    """All sections that name people or lists. Lines that are no entries begin a section; what cannot be read is left
    out.
    """
    sections: list[Section] = []
    title = ""
    entries: list[tuple[str, str]] = []
    for line in [*text.splitlines(), "end"]:
        found = _ENTRY.match(line)
        if found:
            entries.append((found[1], found[2].strip()))
        elif line.strip():
            if entries:
                sections.append(_section(title, entries))
            title, entries = line.strip(), []
    return tuple(section for section in sections if section.people or section.lists)


def _section(title: str, entries: list[tuple[str, str]]) -> Section:
    def of(kind: str) -> list[str]:
        return [value for name, value in entries if name == kind and value]

    maintainers = _addresses(of("M"))
    return Section(
        title=title[:200],
        people=frozenset(address.lower() for address in maintainers),
        lists=tuple(value.split()[0] for value in of("L") if _CLOSED not in value and "@" in value.split()[0]),
        maintainers=maintainers,
        reviewers=_addresses(of("R")),
        files=tuple(of("F")),
        excluded=tuple(of("X")),
        names=tuple(re.compile(value) for value in of("N") if _is_simple(value)),
    )


def _addresses(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(found[1] or found[2] for value in values if (found := _ADDRESS.search(value)))


def _is_simple(expression: str) -> bool:
    repeats = sum(expression.count(sign) for sign in "*+")
    if repeats > _MOST_REPEATS or not _SIMPLE_EXPRESSION.fullmatch(expression):
        return False
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def maintainers_at(repository: Repository, commit: str) -> tuple[Section, ...]:
    """The sections of MAINTAINERS in the tree of `commit`; none where there is no such file."""
    with repository.objects() as reader:
        found = reader.read(f"{commit}:MAINTAINERS")
    if found is None or len(found[1]) > _MOST_BYTES:
        return ()
    return _parsed(*found)


@lru_cache(maxsize=8)
def _parsed(blob: str, content: bytes) -> tuple[Section, ...]:  # noqa: ARG001 (the id is what the cache knows it by)
    return read_maintainers(content.decode("utf-8", "replace"))


def unmaintained(sections: Iterable[Section], person: str, paths: Iterable[str]) -> str:
    """The first of `paths` that no section of this `person` (an address) covers; "" if there is none."""
    own = [section for section in sections if person.lower() in section.people]
    return next((path for path in paths if not any(section.covers(path) for section in own)), "")


# Each is compared with all patterns of all sections of a person, which may be a hundred; a mail names 100,000 paths.
_MOST_PATHS = 2000
log = structlog.get_logger(__name__)


def trusted_addresses(addresses: Iterable[str]) -> set[str]:
    """Those of `addresses` (lower case) that a person has put on the list of trusted senders, unless that is over."""
    lasting = Q(expires_at=None) | Q(expires_at__gt=clock.now())
    rows = TrustedSender.objects.annotate(lower=Lower("address")).filter(lasting, lower__in=set(addresses))
    return set(rows.values_list("lower", flat=True))


def tree_of(series: Series, paths: Collection[str]) -> Tree | None:
    """The tree whose MAINTAINERS speaks about a series: its list's, else the one that takes most of its paths."""
    if series.mailing_list.tree is not None:
        return series.mailing_list.tree

    def taken(tree: Tree) -> int:
        return sum(path.startswith(tuple(tree.paths)) for path in paths)

    trees = Tree.objects.filter(enabled=True).exclude(paths=[]).order_by("-priority", "name")
    best = max(trees, key=taken, default=None)
    return best if best is not None and taken(best) else None


class Maintainers:
    """What MAINTAINERS says about the paths that a series changes; read when it is first asked for."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._is_large = (series.patches.aggregate(n=Sum("message__files"))["n"] or 0) > _MOST_PATHS
        patches = [] if self._is_large else list(series.patches.values_list("message__paths", flat=True))
        self.paths = sorted({path for paths in patches for path in paths})
        # A patch whose paths are not known may change anything.
        self._known = bool(patches) and all(patches)

    @cached_property
    def _sections(self) -> tuple[Section, ...]:
        tree = tree_of(self._series, self.paths)
        branches = Branch.objects.filter(tree=tree, head__isnull=False, deleted_at=None).select_related("head")
        newest = branches.order_by("-head_at", "pk").first() if tree else None
        return maintainers_at(mirror(), newest.head.sha) if newest and newest.head else ()

    def doubt(self, person: str) -> str:
        """Empty if `person` maintains every path of the series, else what is missing."""
        if self._is_large or len(self.paths) > _MOST_PATHS:
            return f"it changes more than {_MOST_PATHS} files, whoever maintains them"
        if not self._known:
            return "what it changes is not known"
        try:
            other = unmaintained(self._sections, person, self.paths)
        except (DomainError, OSError) as error:
            log.warning("maintainers_not_read", series=self._series.pk, error=str(error))
            return "MAINTAINERS cannot be read"
        return f"no maintainer of {other}" if other else ""


_MOST = 50
_LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class SenderRow:
    """`proved` is None while any of the mails is unchecked, and False as soon as one was not proved."""

    address: str
    name: str
    mails: int
    proved: bool | None
    proofs: tuple[str, ...]


def mails_of(series: Series) -> "QuerySet[Message]":
    """The cover letter and all patches, without what they hold. Two queries, both of which go by an index."""
    wanted = [*series.patches.values_list("message_id", flat=True), series.cover_id or 0]
    return Message.objects.filter(pk__in=wanted).defer(*Message.LONG)


def sender_rows(series: Series) -> tuple[SenderRow, ...]:
    """Addresses are one sender in any case of their letters."""
    grouped: dict[str, list[tuple[str, str, bool | None, str]]] = {}
    facts = mails_of(series).order_by("id").values_list("sender_address", "sender_name", "authentic", "authenticity")
    for address, name, authentic, proof in facts:
        grouped.setdefault(address.lower(), []).append((address, name, authentic, proof))
    return tuple(_sender(mails) for mails in list(grouped.values())[:_MOST])


@dataclass(frozen=True, slots=True)
class Unproved:
    """`shown` are the first mails by place and subject, `more` counts the others."""

    shown: tuple[str, ...]
    more: int


def unproved_mails(series: Series, most: int) -> Unproved:
    """The cover letter and patches whose senders are not proved, or not checked yet. Three queries."""
    letter = Message.objects.filter(pk=series.cover_id or 0).exclude(authentic=True).values_list("subject", flat=True)
    letters = [(0, parse_subject(subject).title) for subject in letter]
    patches = series.patches.exclude(message__authentic=True).order_by("index")
    found = [*letters, *patches.values_list("index", "subject")[:most]][:most]
    more = len(letters) + patches.count() - len(found)
    return Unproved(tuple(f"{index}/{series.total} {title[:_LONGEST_TITLE]}" for index, title in found), more)


def _sender(mails: list[tuple[str, str, bool | None, str]]) -> SenderRow:
    marks = {authentic for _, _, authentic, _ in mails}
    proofs = dict.fromkeys(proof for *_, proof in mails if proof)
    return SenderRow(
        address=mails[0][0],
        name=mails[0][1],
        mails=len(mails),
        proved=False if False in marks else None if None in marks else True,
        proofs=tuple(proofs)[:_MOST],
    )
