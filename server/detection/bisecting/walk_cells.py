"""Cells of a walk: which they are, and the product of what the patches add in them."""

from collections.abc import Iterable, Mapping

from server.detection.bisecting.chains import NOTHING, Link, joined, link
from server.detection.models import Comparison
from server.detection.scope import is_same_code
from server.lab.models import Session

# Machine, case, metric, core type.
Key = tuple[int, int, int, int]


def key_of(row: Comparison) -> Key:
    return row.session.machine_id, row.case_id, row.metric_id, row.core_type_id


def name_of_cell(row: Comparison) -> str:
    """As people call it; the core type is named where the machine has others, and "all" is none."""
    cores = "" if row.core_type.name == "all" else f" on {row.core_type.name} cores"
    return f"{row.metric.name} of {row.case.name}{cores}"


class Chain:
    """The product so far of each cell; None from the patch on that has no ratio for it."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.so_far: dict[Key, Link | None] = dict.fromkeys(keys, NOTHING)

    def add(self, sessions: Iterable[Session], rows: Mapping[Key, Comparison]) -> None:
        """One more patch."""
        same = {session.machine_id for session in sessions if is_same_code(session)}
        for key, start in self.so_far.items():
            row = rows.get(key)
            if key[0] not in same:
                self.so_far[key] = joined(start, link(row.ratio, row.ratio_low, row.ratio_high) if row else None)
