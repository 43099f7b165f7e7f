"""The checks of a finding as pages list them, and those that failed, which stand with the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server.detection.findings.checks import CheckOutcome, Name
from server.detection.models import Finding, MachineQuestion


@dataclass(frozen=True, slots=True)
class CheckLine:
    """`caught` says what the check would have found, had it been there."""

    name: str
    machine: str
    outcome: str
    text: str
    caught: str
    # The machine's name, whether or not the text says it.
    of: str
    # What is open about the machine: a check looks at what it is about, and at nothing else.
    questions: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """A search does not pass: it finds something or not."""
        return _FOUND.get((self.name, self.outcome), self.outcome.replace("-", " "))


_FOUND: Mapping[tuple[str, str], str] = {
    (Name.BISECTION, "passed"): "found",
    (Name.BISECTION, "not-checked"): "found none",
    (Name.FIX, "passed"): "mends it",
    (Name.FIX_SEARCH, "not-checked"): "searched",
}
_MOST_QUESTIONS = 20
_CAUGHT: Mapping[str, str] = {
    Name.CODE: "a change between kernels that run the same code",
    Name.MACHINE: "a machine that was sick, or changed, when it measured this",
    Name.BASE: "a base that measures otherwise than it used to",
    Name.LAYOUT: "an effect of where code lies, which another layout does not show",
    Name.AGAIN: "a change that fresh boots of both ends do not show",
    Name.RETEST: "a change that the same question, asked once more, does not show",
    Name.BISECTION: "a change that no single revision made",
    Name.FIX: "a fix that does not mend it",
    Name.FIX_SEARCH: "a later commit that mends it already",
}


def check_lines(finding: Finding) -> tuple[CheckLine, ...]:
    """All of them, with what is open about the machines. One query."""
    names = [str(check.get("machine", "")) for check in finding.checks if check.get("name") == Name.MACHINE]
    rows = MachineQuestion.objects.filter(machine__name__in=names, state=MachineQuestion.State.OPEN).order_by("-pk")
    asked: dict[str, list[str]] = {}
    for machine, detail in rows.values_list("machine__name", "detail")[:_MOST_QUESTIONS]:
        asked.setdefault(machine, []).append(detail)
    return tuple(
        _line(check, tuple(asked.get(str(check.get("machine", "")), ())) if check.get("name") == Name.MACHINE else ())
        for check in finding.checks
    )


def failed_checks(checks: Sequence[Mapping[str, Any]]) -> tuple[CheckLine, ...]:
    """What must be known before the verdicts are believed."""
    return tuple(_line(check) for check in checks if check.get("outcome") == CheckOutcome.FAILED)


def _line(check: Mapping[str, Any], questions: tuple[str, ...] = ()) -> CheckLine:
    name, machine = str(check.get("name", "")), str(check.get("machine", ""))
    return CheckLine(
        name=name,
        machine=_unnamed_machine(check),
        outcome=str(check.get("outcome", "")),
        text=str(check.get("text", "")),
        caught=_CAUGHT.get(name, ""),
        of=machine,
        questions=questions,
    )


def _unnamed_machine(check: Mapping[str, Any]) -> str:
    """The machine of a check whose text does not begin with it already."""
    machine = str(check.get("machine", ""))
    return "" if str(check.get("text", "")).startswith(machine) else machine
