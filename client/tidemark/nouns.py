"""What can be listed: its address, the columns that a table shows, and the field that `--fail-on` reads."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.api import Row


@dataclass(frozen=True)
class Noun:
    """`outcome` is the field whose values `--fail-on` names, empty where there is none.

    `filter` is the parameter of the list that takes the same values; where there is none, they are `outcomes`.
    """

    path: str
    columns: tuple[str, ...]
    outcome: str = ""
    filter: str = ""
    outcomes: tuple[str, ...] = ()


NOUNS: Mapping[str, Noun] = {
    "findings": Noun("findings", ("id", "kind", "state", "evidence", "headline", "created_at"), "kind", "kind"),
    "series": Noun(
        "series", ("id", "version", "state", "finding.kind", "subject", "received_at"), "finding.kind", "finding"
    ),
    "sessions": Noun("sessions", ("id", "purpose", "machine", "state", "reason"), "state", "state"),
    "timelines": Noun("timelines", ("id", "tree", "branch", "machine", "benchmark", "case", "metric", "evidence")),
    "machines": Noun("machines", ("name", "uarch", "evidence", "state", "health", "health_reason"), "health", "health"),
    "builders": Noun("builders", ("name", "state", "health", "health_reason"), "health", "health"),
    "builds": Noun("builds", ("id", "state", "revision.sha", "config", "toolchain", "reason"), "state", "state"),
    "queue": Noun("queue", ("place", "kind", "id", "title", "machine", "why")),
    "attempts": Noun("attempts", ("key", "state", "machine", "builder", "reason"), "state", "state"),
    "power-cycles": Noun("power-cycles", ("id", "machine", "state", "reason"), "state", "state"),
    "trees": Noun("trees", ("name", "url", "failing_since", "last_error")),
    "branches": Noun("branches", ("tree", "name", "head", "head_at")),
    "head-moves": Noun("head-moves", ("at", "tree", "branch", "kind", "before", "after")),
    "wanted-revisions": Noun("wanted-revisions", ("tree", "revision.sha", "why", "detail", "revision.subject")),
    "reports": Noun("reports", ("id", "finding", "state", "reason"), "state", "state"),
    "deliveries": Noun("deliveries", ("id", "finding", "state", "message_id", "sent_at"), "state", "state"),
    "acceptances": Noun("acceptances", ("finding", "metric", "uarchs", "person", "expires_at", "reason")),
    "uarchs": Noun("uarchs", ("name", "arch", "title")),
    "benchmarks": Noun("benchmarks", ("name", "title", "version")),
    "cases": Noun("cases", ("benchmark", "name", "title", "parameters")),
    "metrics": Noun("metrics", ("benchmark", "name", "unit", "better", "title")),
    "messages": Noun("messages", ("id", "kind", "message_id", "subject", "reason"), "kind", "kind"),
    "machine-questions": Noun("machine-questions", ("id", "machine", "kind", "state", "reason"), "state", "state"),
}


def field(row: Row, name: str) -> Any:
    """The field of a row; `a.b` is `b` of its `a`. None where it has none.

    Of what lists things, `a.zen3.b` is `b` of the one that is of that microarchitecture, or has that name.
    """
    found: Any = row
    for part in name.split("."):
        if isinstance(found, list):
            found = next((one for one in found if isinstance(one, dict) and part in _names(one)), None)
        else:
            found = found.get(part) if isinstance(found, dict) else None
    return found


def _names(one: Row) -> tuple[Any, Any]:
    return one.get("uarch"), one.get("name")


def of_service(columns: Iterable[str]) -> str:
    """`fields` of the question that asks for these columns and no more."""
    return ",".join(dict.fromkeys(name.partition(".")[0] for name in columns))


POINT = ("place", "sha", "committed_at", "ratio", "ratio_low", "ratio_high", "session", "change")


def points(timeline: Row) -> Iterator[Row]:
    """The points of a timeline, oldest first; `change` is the effect of the level change that begins there."""
    changes = {one["place"]: one for one in timeline["change_points"] if one["state"] != "withdrawn"}
    for point in timeline["points"]:
        begins = changes.get(point["place"])
        yield {**point, "change": begins and begins["effect"]}


PAIR = Noun(
    "compare",
    (
        "machine", "uarch", "evidence", "benchmark", "case", "metric", "verdict", "ratio", "ratio_low", "ratio_high",
        "mde", "shares_session",
    ),
    "verdict",
    outcomes=("improved", "regressed", "unchanged", "inconclusive"),
)  # fmt: skip


def cells(pair: Row) -> Iterator[Row]:
    """Every comparison of two kernels as a row, with what its machine says of all."""
    for machine in pair["machines"]:
        about = {name: machine[name] for name in ("evidence", "virtual", "shares_session", "statement", "sessions")}
        for one in machine["comparisons"]:
            yield {**one, **about}


VALUE = (
    "session", "evidence", "clock", "benchmark", "case", "metric", "unit", "core_type", "boot", "arm", "judged", "run",
    "warmup", "value",
)  # fmt: skip

NOISE = Noun(
    "noise",
    (
        "machine", "evidence", "benchmark", "case", "metric", "core_type", "comparisons", "false_alarms", "change_95",
        "boot_sd", "mde", "min_effect",
    ),
)  # fmt: skip

EVENT = Noun("transitions", ("event", "kind", "subject", "id", "before", "after", "reason_code", "at"))

WHAT_IF = Noun(
    "what-if",
    ("machine", "evidence", "boots", "benchmark", "case", "metric", "core_type", "mde", "min_effect", "statement"),
)
