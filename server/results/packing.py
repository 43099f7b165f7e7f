"""How measurements lie in the database: those of one metric of a boot together, as many as find room in a row.

A case has a few values, and a row of its own takes four times their bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from django.db import connection

# PostgreSQL keeps rows above 2 kB in pieces apart, which each reader would have to gather for each case in them.
_MOST_BYTES = 1700
# Of a case beside its values: what stands of it in `cases`, `warmups` and `ends`.
_OWN_BYTES, _BYTES_A_VALUE = 12, 8
_COLUMNS = 'boot_id, metric_id, core_type_id, version_id, recorded_at, first_case, cases, warmups, ends, "values"'


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """The values of one (case, metric, core type) of a boot, warm-up first."""

    case_id: int
    metric_id: int
    core_type_id: int
    version_id: int
    warmup: int
    values: Sequence[float]


def copy_measurements(measured: Iterable[tuple[int, Iterable[MeasuredCase]]], at: datetime) -> None:
    """Store what boots (by their ids) gave, as one text: a boot has a hundred thousand values."""
    moment = at.isoformat()
    lines = (_line(boot, row, moment) for boot, cases in measured for row in _packed(cases))
    with connection.cursor() as cursor, cursor.copy(f"COPY results_packedvalues ({_COLUMNS}) FROM STDIN") as copy:
        copy.write("".join(lines))


def _packed(cases: Iterable[MeasuredCase]) -> Iterator[list[MeasuredCase]]:
    """Rows: of one metric, core type and version each, by the ids of their cases."""
    row: list[MeasuredCase] = []
    size = 0
    for one in sorted(cases, key=lambda one: (one.metric_id, one.core_type_id, one.version_id, one.case_id)):
        own = _OWN_BYTES + _BYTES_A_VALUE * len(one.values)
        if row and (size + own > _MOST_BYTES or not _is_alike(one, row[0])):
            yield row
            row, size = [], 0
        row.append(one)
        size += own
    if row:
        yield row


def _is_alike(one: MeasuredCase, other: MeasuredCase) -> bool:
    return (one.metric_id, one.core_type_id, one.version_id) == (other.metric_id, other.core_type_id, other.version_id)


def _line(boot: int, row: Sequence[MeasuredCase], moment: str) -> str:
    first = row[0]
    arrays = (
        [one.case_id for one in row],
        [one.warmup for one in row],
        accumulate(len(one.values) for one in row),
        [value for one in row for value in one.values],
    )
    texts = "\t".join(f"{{{','.join(map(repr, array))}}}" for array in arrays)
    ids = f"{boot}\t{first.metric_id}\t{first.core_type_id}\t{first.version_id}"
    return f"{ids}\t{moment}\t{first.case_id}\t{texts}\n"
