"""What somebody asks of the list of findings, as it stands in the page's address.

What is not known is told together with what is, and then nothing is listed: with the filter left out, all findings
would look like its answer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from typing import Any, Final

from django.db.models import CharField, Model, Q, QuerySet, Value
from django.http import QueryDict
from django.utils.dateparse import parse_date, parse_datetime

from server.detection.findings.filters import (
    ClaimFilter,
    claiming_anywhere,
    is_open,
    of_author,
    of_commit,
    of_path,
    of_tree,
)
from server.detection.models import Finding, FindingState, Verdict
from server.lab.models import Microarchitecture
from server.results.models import Benchmark
from server.sources.models import Tree

_LONGEST = 300
_LONGEST_TOLD = 60
_MOST_KNOWN = 50
_SHA_DIGITS: Final = frozenset("0123456789abcdef")
_SHORTEST_SHA, _LONGEST_SHA = 7, 40
NOBODY, ME = "none", "me"
OPEN_WORD = "open"
# Of a kind that a list is asked for by; a split regressed somewhere, and improved somewhere.
KINDS: Final[Mapping[str, str]] = {
    "regressed": "regressed somewhere",
    "improved": "improved somewhere",
    "split": "split",
    "unchanged": "unchanged",
    "inconclusive": "inconclusive",
}
STATES: Final[Mapping[str, str]] = {
    OPEN_WORD: "not mended, accepted or withdrawn",
    **{state.value: state.label for state in FindingState},
}
FILTERS = (
    "kind", "uarch", "regressed_on", "improved_on", "tree", "benchmark", "author", "path", "commit", "assignee",
    "since", "until",
)  # fmt: skip
_Narrow = Callable[[QuerySet[Finding], str], QuerySet[Finding]]
_PARAMETERS = ("state", *FILTERS, "page")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What can be asked for, each name with its id. `people` are those who may look after a finding.

    They sign in by their names, which are told to those alone who may decide as well.
    """

    uarchs: Mapping[str, int]
    trees: Mapping[str, int]
    benchmarks: Mapping[str, int]
    people: Mapping[str, int]
    tells_people: bool


def known_names(people: Mapping[str, int], *, tells_people: bool) -> KnownNames:
    """One query."""
    tables: dict[str, type[Model]] = {"uarch": Microarchitecture, "tree": Tree, "benchmark": Benchmark}
    parts: list[QuerySet[Any, Any]] = [
        model._default_manager.order_by()
        .annotate(table=Value(table, output_field=CharField()))
        .values_list("table", "name", "pk")
        for table, model in tables.items()
    ]
    found: dict[str, dict[str, int]] = {table: {} for table in tables}
    for table, name, pk in sorted(parts[0].union(*parts[1:], all=True)):
        found[table][name] = pk
    return KnownNames(found["uarch"], found["tree"], found["benchmark"], people, tells_people)


@dataclass(slots=True)
class FindingQuestion:
    """`asked` are the values as they were written, `problems` sentences about those that mean nothing."""

    asked: dict[str, str]
    names: KnownNames
    me: str
    problems: list[str] = field(default_factory=list)

    @property
    def narrows(self) -> bool:
        return bool(self.asked)

    @property
    def state(self) -> str:
        return self.asked.get("state", "")

    def narrowed(self, findings: QuerySet[Finding]) -> QuerySet[Finding]:
        """By all that is asked but the state, by which they are counted. Fills `problems`."""
        ways: dict[str, _Narrow] = {
            "kind": self._of_kind,
            "uarch": self._of_uarch,
            "tree": self._of_tree,
            "author": self._of_author,
            "path": of_path,
            "commit": self._of_commit,
            "assignee": self._of_assignee,
            "since": self._since,
            "until": self._until,
        }
        for name, narrow in ways.items():
            if name in self.asked:
                findings = narrow(findings, self.asked[name])
        # What is asked of cells is asked together.
        return self._claims().of(findings)

    def in_state(self, findings: QuerySet[Finding]) -> QuerySet[Finding]:
        if not self.state:
            return findings
        if self.state == OPEN_WORD:
            return findings.filter(is_open())
        if self.state not in STATES:
            self.problems.append(_unknown("state", self.state, STATES))
        return findings.filter(state=self.state)

    def _claims(self) -> ClaimFilter:
        of_cell = [Q(case__benchmark=pk) for pk in self._ids("benchmark", self.names.benchmarks)]
        return ClaimFilter(
            regressed_on=self._ids("regressed_on", self.names.uarchs, "uarch"),
            improved_on=self._ids("improved_on", self.names.uarchs, "uarch"),
            of_cell=of_cell,
        )

    def _ids(self, name: str, known: Mapping[str, int], what: str = "") -> list[int]:
        if name not in self.asked:
            return []
        value = self.asked[name]
        if value not in known:
            self.problems.append(_unknown(what or name, value, known))
            return []
        return [known[value]]

    def _of_kind(self, findings: QuerySet[Finding], kind: str) -> QuerySet[Finding]:
        if kind in (Verdict.REGRESSED, Verdict.IMPROVED):
            return claiming_anywhere(findings, Verdict(kind))
        if kind not in KINDS:
            self.problems.append(_unknown("kind", kind, KINDS))
        return findings.filter(kind=kind)

    def _of_uarch(self, findings: QuerySet[Finding], _name: str) -> QuerySet[Finding]:
        return findings.filter(verdicts__uarch__in=self._ids("uarch", self.names.uarchs))

    def _of_tree(self, findings: QuerySet[Finding], _name: str) -> QuerySet[Finding]:
        return of_tree(findings, self._ids("tree", self.names.trees))

    def _of_author(self, findings: QuerySet[Finding], address: str) -> QuerySet[Finding]:
        if "@" not in address:
            told = f"An author is asked for by address, as in somebody@example.org, not {address[:_LONGEST_TOLD]}."
            self.problems.append(told)
        return of_author(findings, address)

    def _of_commit(self, findings: QuerySet[Finding], given: str) -> QuerySet[Finding]:
        sha = given.lower()
        if not (_SHORTEST_SHA <= len(sha) <= _LONGEST_SHA and _SHA_DIGITS.issuperset(sha)):
            self.problems.append("Write a commit as 7 to 40 hexadecimal digits.")
            return findings.none()
        return of_commit(findings, sha)

    def _of_assignee(self, findings: QuerySet[Finding], name: str) -> QuerySet[Finding]:
        if name == NOBODY:
            return findings.filter(assignee=None)
        if name == ME and not self.me:
            self.problems.append("Sign in to see the findings that are yours.")
            return findings.none()
        wanted = self.me if name == ME else name
        if wanted not in self.names.people and name != ME:
            known = [ME, NOBODY, *self.names.people]
            told = _unknown("person who triages", name, known if self.names.tells_people else known[:2])
            self.problems.append(told if self.names.tells_people else f"{told} Names are told to who may triage.")
        return findings.filter(assignee__username=wanted)

    def _since(self, findings: QuerySet[Finding], given: str) -> QuerySet[Finding]:
        at = self._moment(given)
        return findings if at is None else findings.filter(created_at__gte=at)

    def _until(self, findings: QuerySet[Finding], given: str) -> QuerySet[Finding]:
        at = self._moment(given)
        return findings if at is None else findings.filter(created_at__lt=at)

    def _moment(self, given: str) -> datetime | None:
        at = moment_of(given)
        if at is None:
            self.problems.append(f"Write a day as 2026-11-30, not {given[:_LONGEST_TOLD]}.")
        return at


def question_of(given: QueryDict, names: KnownNames, me: str) -> FindingQuestion:
    """`me` is the login name of who asks, or "". A parameter that is not known is a problem as well."""
    asked = {name: clean(str(given[name])) for name in _PARAMETERS if name in given and name != "page"}
    question = FindingQuestion({name: value for name, value in asked.items() if value}, names, me)
    question.problems += [_unknown("filter", name, _PARAMETERS) for name in list(given)[:20] if name not in _PARAMETERS]
    return question


def clean(text: str) -> str:
    """What the database takes, and no more than anybody means."""
    return text.replace("\0", "").strip()[:_LONGEST]


def moment_of(given: str) -> datetime | None:
    """A day begins at midnight in UTC. None for what is no day, and no moment either."""
    try:
        day = parse_date(given)
        at = datetime.combine(day, time(), UTC) if day else parse_datetime(given)
        return None if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _unknown(what: str, value: str, known: Iterable[str]) -> str:
    names = list(known)
    told = ", ".join(names[:_MOST_KNOWN]) + (", ..." if len(names) > _MOST_KNOWN else "")
    return f"There is no {what} {value[:_LONGEST_TOLD]} here. Known: {told or 'none'}."
