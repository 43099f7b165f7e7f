"""A finding as text: what it says, what was checked, who decided what."""

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from server.core.errors import DomainError
from server.core.middleware import for_terminal
from server.core.models import Transition
from server.detection.branches.release import Why, invalidate
from server.detection.findings.table import finding_vector
from server.detection.findings.versions import compare_versions
from server.detection.lifecycle.ledger import accept, ask_for_fix, reopen, standing, withdraw_acceptance
from server.detection.models import Acceptance, Finding, FindingState
from server.results.models import Metric

_SHOWN_LINES = 30
_SHOWN_COUNTERS = 10


def finding_text(finding: Finding) -> str:
    """Lines for a terminal, with what strangers wrote made visible."""
    return "\n".join(for_terminal(line) for line in _lines(finding))


def _lines(finding: Finding) -> Iterator[str]:
    yield f"finding {finding.pk}: {finding.kind}, {Finding.State(finding.state).label}"
    yield f"  {finding.headline}"
    yield f"  of {finding.series or finding.branch}{' (virtual machines: no evidence)' if finding.virtual else ''}"
    if finding.reason:
        yield f"  since {finding.state_since:%Y-%m-%d %H:%M} UTC: {finding.reason}"
    if finding.culprit:
        yield f"  made by {finding.culprit}"
    if finding.fix:
        yield f"  mended by {finding.fix}"
    yield from _section(
        "verdicts",
        (f"{one.uarch}: {one.verdict}{f' ({one.reason})' if one.reason else ''}" for one in finding_vector(finding)),
    )
    yield from _section("checks", (f"{row.get('name')}: {row.get('outcome')}, {row['text']}" for row in finding.checks))
    yield from _section("explanations", (str(row["text"]) for row in finding.explanations))
    yield from _section("counters", (str(row["text"]) for row in finding.counters[:_SHOWN_COUNTERS]))
    yield from _section("ledger", (_line(line) for line in finding.acceptances.select_related("metric__benchmark")))
    versions = compare_versions(finding)
    yield from _section("versions", [versions.sentence] if versions else [])
    yield from _section("history, the newest first", _history(finding))


def _section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)


def _line(line: Acceptance) -> str:
    what = f"{line.metric or 'all metrics'} on {', '.join(line.uarchs) or 'all microarchitectures'}"
    until = f", until {line.expires_at:%Y-%m-%d %H:%M} UTC" if line.expires_at else ""
    gone = f", withdrawn {line.withdrawn_at:%Y-%m-%d %H:%M} UTC" if line.withdrawn_at else ""
    return f"{line.pk}: {what}, by {line.person}{until}{gone}: {line.reason}"


def _history(finding: Finding) -> Iterator[str]:
    lines = Transition.objects.filter(subject="finding", subject_id=finding.pk).order_by("-id")
    for line in lines[:_SHOWN_LINES]:
        by = f" by {line.actor}" if line.actor else ""
        reason = f": {line.reason}" if line.reason else ""
        yield f"{line.at:%Y-%m-%d %H:%M:%S} {line.before or 'new'} -> {line.after}{by}{reason}"


class Command(BaseCommand):
    help = "Print a finding, accept it, take an acceptance back, withdraw it, open it again, or measure a fix."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        self._action(actions, "show", "print all that is known of it")
        taking = self._action(actions, "accept", "write a line into the ledger: its regressions are accepted")
        taking.add_argument("--metric", metavar="BENCHMARK:METRIC", default="", help="this one only")
        taking.add_argument("--uarch", metavar="UARCH", action="append", default=[], help="there only; may be repeated")
        taking.add_argument("--until", metavar="YYYY-MM-DD", default="", help="last day (UTC) on which it is accepted")
        back = self._action(actions, "unaccept", "take lines of the ledger back")
        back.add_argument("--line", type=int, metavar="N", help="this line; all that hold if not given")
        withdrawing = self._action(actions, "invalidate", "withdraw it: it was no change of the code")
        withdrawing.add_argument("--why", choices=[why.value for why in Why], required=True, help="what it was")
        again = self._action(actions, "reopen", "it was said to be mended and is not")
        fixing = self._action(actions, "fix", "measure whether a later commit mends it, whatever was tried")
        fixing.add_argument("sha", help="id of the commit, 7 digits at least")
        for deciding in (taking, back, withdrawing, again):
            deciding.add_argument("reason", help="for everybody to read")
        for deciding in (taking, back, withdrawing, again, fixing):
            deciding.add_argument("--by", metavar="PERSON", required=True, help="who decides this")

    def _action(self, actions: Any, name: str, text: str) -> ArgumentParser:
        found: ArgumentParser = actions.add_parser(name, help=text)
        found.add_argument("id", type=int, help="number of the finding")
        return found

    def handle(self, *_args: Any, action: str, **options: Any) -> None:
        rows = Finding.objects.select_related("series", "branch__tree", "culprit", "fix", "trial", "previous__series")
        finding = rows.filter(pk=options["id"]).first()
        if finding is None:
            raise CommandError(f"there is no finding {options['id']}")
        try:
            if action == "show":
                self.stdout.write(finding_text(finding))
                return
            if action == "accept":
                self._accept(finding, options)
            elif action == "unaccept":
                self._unaccept(finding, options)
            elif action == "reopen":
                reopen(finding, actor=_person(options), reason=options["reason"])
            elif action == "fix":
                trial = ask_for_fix(finding, options["sha"], actor=_person(options))
                self.stdout.write(f"{trial.patched.sha[:12]} is measured against {trial.base.sha[:12]}")
            else:
                why, reason = Why(options["why"]), options["reason"]
                invalidate(finding, actor=_person(options), why=why, reason=reason)
        except DomainError as error:
            raise CommandError(error.message) from error
        finding.refresh_from_db(fields=["state"])
        self.stdout.write(f"finding {finding.pk}: {FindingState(finding.state).label}")

    def _accept(self, finding: Finding, options: dict[str, Any]) -> None:
        line = accept(
            finding,
            actor=_person(options),
            reason=options["reason"],
            metric=_metric(options["metric"]),
            uarchs=options["uarch"],
            expires_at=_end_of(options["until"]),
        )
        self.stdout.write(f"line {line.pk} of the ledger")

    def _unaccept(self, finding: Finding, options: dict[str, Any]) -> None:
        lines = [line for line in standing(finding) if options["line"] in (None, line.pk)]
        if not lines:
            wanted = f"line {options['line']}" if options["line"] else "a line"
            raise CommandError(f"finding {finding.pk} has not {wanted} in the ledger that holds")
        for line in lines:
            withdraw_acceptance(line, actor=_person(options), reason=options["reason"])


def _person(options: dict[str, Any]) -> str:
    person = str(options["by"]).strip()
    if not person:
        raise CommandError("--by: who decides this is not said")
    return person


def _metric(told: str) -> Metric | None:
    if not told:
        return None
    benchmark, _, name = told.partition(":")
    found = Metric.objects.filter(benchmark__name=benchmark, name=name).first()
    if found is None:
        raise CommandError(f"--metric: there is no metric {told!r}; it is written as BENCHMARK:METRIC")
    return found


def _end_of(told: str) -> datetime | None:
    if not told:
        return None
    try:
        day = datetime.strptime(told, "%Y-%m-%d").replace(tzinfo=UTC).date()
        return datetime.combine(day + timedelta(days=1), time(), tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise CommandError(f"--until: {told!r} is no day as YYYY-MM-DD") from error
