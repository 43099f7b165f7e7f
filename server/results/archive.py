"""What has left the database, as Parquet files in the store of artifacts: written, found and read again.

A file holds rows of one kind of sessions of one month, a row group for each session, with all names in the rows: it can
be read without this service. Its manifest says what is in it.
"""

import hashlib
import io
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from operator import itemgetter
from typing import Any, BinaryIO

import pyarrow as pa
from django.db.models import F, Q, QuerySet
from pyarrow import compute, parquet

from server.builds.storage import artifact_store, open_artifact, put_artifact
from server.core.errors import DomainError
from server.core.models import Transition
from server.lab.models import Attempt, BootState, Conditions, Session
from server.results.models import ArchivedSession, KeptKind, Measurement
from server.results.samples import SampledCell, archived

_PIECE = 1 << 20
# Before it is made smaller: the store takes no file above half a gigabyte.
_MOST_BYTES = 128 << 20
_TEXT, _NUMBER, _MOMENT = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
_FORMAT = 1


@dataclass(frozen=True)
class _Form:
    """Columns of a file, with their types, and where the database has them: the rows of a session in one order."""

    columns: Mapping[str, tuple[str, pa.DataType]]
    rows: Callable[[int], "QuerySet[Any, Any]"]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, kind) for name, (_, kind) in self.columns.items()])


def _own(*names: str, kind: pa.DataType) -> dict[str, tuple[str, pa.DataType]]:
    return {name: (name, kind) for name in names}


_SAMPLES = _Form(
    {
        **_own("id", kind=_NUMBER),
        "session": ("boot__session_id", _NUMBER),
        "boot": ("boot_id", _NUMBER),
        "position": ("boot__position", pa.int32()),
        "arm": ("boot__arm", _TEXT),
        "state": ("boot__state", _TEXT),
        "benchmark": ("case__benchmark__name", _TEXT),
        "version": ("version__hash", _TEXT),
        "case": ("case__name", _TEXT),
        "metric": ("metric__name", _TEXT),
        "unit": ("metric__unit", _TEXT),
        "better": ("metric__better", _TEXT),
        "core_type": ("core_type__name", _TEXT),
        **_own("case_id", "metric_id", "core_type_id", kind=_NUMBER),
        **_own("recorded_at", kind=_MOMENT),
        **_own("warmup", kind=pa.int32()),
        **_own("values", kind=pa.list_(pa.float64())),
    },
    lambda session: Measurement.objects.filter(boot__session=session, summarised=False).order_by(
        "case__benchmark__name", "case__name", "metric__name", "core_type__name", "boot__position", "pk"
    ),
)
_CONDITIONS = _Form(
    {
        "session": ("boot__session_id", _NUMBER),
        "boot": ("boot_id", _NUMBER),
        "position": ("boot__position", pa.int32()),
        **_own("facts", "document", "console_tail", kind=_TEXT),
    },
    lambda session: Conditions.objects.filter(boot__session=session).order_by("boot__position"),
)


def _steps(session: int) -> "QuerySet[Transition]":
    row = Session.objects.get(pk=session)
    boots = list(row.boots.order_by().values_list("pk", flat=True))
    attempts = list(Attempt.objects.filter(session=session).order_by().values_list("pk", flat=True))
    of = Q(subject="boot", subject_id__in=boots) | Q(subject="attempt", subject_id__in=attempts)
    return Transition.objects.filter(of).order_by("pk")


_TRANSITIONS = _Form(
    {
        **_own("id", "subject_id", kind=_NUMBER),
        **_own("trace", "subject", "before", "after", "reason", "reason_code", "actor", kind=_TEXT),
        **_own("at", kind=_MOMENT),
    },
    _steps,
)
_LOGS = _Form(
    {"session": ("session_id", _NUMBER), **_own("key", "log", kind=_TEXT)},
    lambda session: Attempt.objects.filter(session=session).exclude(log="").order_by("pk"),
)
_FORMS: Mapping[str, _Form] = {
    KeptKind.SAMPLES: _SAMPLES,
    KeptKind.CONDITIONS: _CONDITIONS,
    KeptKind.TRANSITIONS: _TRANSITIONS,
    KeptKind.LOGS: _LOGS,
}


def rows_of(kind: str, session: int) -> "QuerySet[Any, Any]":
    """What the database has of a session that a file of this kind holds."""
    return _FORMS[kind].rows(session)


def as_table(kind: str, session: int) -> pa.Table:
    """The same as it stands in the file."""
    form = _FORMS[kind]
    paths = {name: F(path) for name, (path, _) in form.columns.items() if path != name}
    names = [path if path == name else f"told_{name}" for name, (path, _) in form.columns.items()]
    rows = form.rows(session).annotate(**{f"told_{name}": path for name, path in paths.items()}).values_list(*names)
    columns = list(zip(*rows.iterator(chunk_size=2000), strict=True)) or [()] * len(names)
    arrays = [_array(told, field.type) for told, field in zip(columns, form.schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=form.schema)


def _array(told: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == _TEXT:
        told = [one if isinstance(one, str) else json.dumps(one, sort_keys=True) for one in told]
    return pa.array(told, kind)


@dataclass(frozen=True)
class Written:
    """A file and its manifest, by their names in the store; `places` has the row group of each session."""

    sha256: str
    manifest: str
    size: int
    rows: int
    places: Mapping[int, int]


def write_part(kind: str, month: date, number: int, sessions: Iterable[int]) -> Written:
    """Store what these sessions have of this kind, or the first of them. Raises DomainError where the store takes none.

    A file that was written and is named by no row is removed as any other of the store.
    """
    places: dict[int, int] = {}
    rows = size = 0
    with tempfile.TemporaryFile(dir=artifact_store().spool_folder()) as file:
        schema = _FORMS[kind].schema
        with parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
            for session in sessions:
                table = as_table(kind, session)
                places[session] = len(places)
                rows, size = rows + table.num_rows, size + table.nbytes
                # An empty one would be no row group, and those after it would stand in other places.
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
                if size > _MOST_BYTES:
                    break
        sha256, size = _stored(file)
    told = {
        "format": _FORMAT,
        "kind": kind,
        "month": f"{month:%Y-%m}",
        "part": number,
        "file": {"sha256": sha256, "bytes": size, "rows": rows},
        "sessions": list(places),
    }
    manifest, _ = _stored(io.BytesIO(json.dumps(told, indent=1).encode()))
    return Written(sha256, manifest, size, rows, places)


def _stored(file: BinaryIO) -> tuple[str, int]:
    file.seek(0)
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    size = file.tell()
    file.seek(0)
    put_artifact(sha256, iter(lambda: file.read(_PIECE), b""))
    return sha256, size


@contextmanager
def part_file(sha256: str, *, whole: bool = False) -> Iterator[parquet.ParquetFile]:
    """The file of this name. Each page of it is checked as it is read, with `whole` all its bytes before that.

    Raises DomainError `damaged` (or gone), or `store-away`.
    """
    try:
        with _seekable(sha256, whole=whole) as file:
            yield parquet.ParquetFile(file, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DomainError("damaged", f"archive {sha256[:12]} cannot be read: {error}") from error
    except DomainError as error:
        if error.code != "not-found":
            raise
        raise DomainError("damaged", f"archive {sha256[:12]} is gone") from error


@contextmanager
def _seekable(sha256: str, *, whole: bool) -> Iterator[BinaryIO]:
    store = artifact_store()
    if not whole and store.find(sha256) is not None:
        stream = store.open(sha256)
        if hasattr(stream, "seekable") and stream.seekable():
            with stream:
                yield stream
            return
    with tempfile.TemporaryFile(dir=store.spool_folder()) as file:
        for piece in open_artifact(sha256).chunks:
            file.write(piece)
        file.seek(0)
        yield file


def read_place(file: parquet.ParquetFile, place: int, columns: Sequence[str] | None = None) -> pa.Table:
    """What one session has in the file."""
    return file.read_row_group(place, columns=columns)


def whole(rows: list[Measurement]) -> list[Measurement]:
    """The same rows, read with their boots; those whose samples have left have them back."""
    left: dict[int, list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.summarised:
            left[row.boot.session_id].append(row)
    for session, at in (archived(left) if left else {}).items():
        _give_back(left[session], at)
    return rows


def _give_back(rows: Sequence[Measurement], at: ArchivedSession) -> None:
    """Set in these rows of one session what they were before their samples left."""
    wanted = pa.array(sorted(row.pk for row in rows), _NUMBER)
    names = ["id", "warmup", "values"]
    with part_file(at.part.sha256) as file:
        table = read_place(file, at.place, names)
    table = table.filter(compute.is_in(table["id"], wanted))
    found = {pk: rest for pk, *rest in zip(*(table[name].to_pylist() for name in names), strict=True)}
    for row in rows:
        row.warmup, row.values = found[row.pk]
        row.number, row.summarised = len(row.values), False


_OF_CELL = ("case_id", "metric_id", "core_type_id")
_OF_BOOT = ("position", "arm", "state", "warmup", "values")


def archived_columns(
    at: ArchivedSession, measured: "QuerySet[Measurement]", cells: Sequence[SampledCell]
) -> Iterator[tuple[SampledCell, dict[str, list[Any]]]]:
    """As `samples.sample_columns`, of a session whose samples have left; `measured` says which of them are wanted.

    The file is open before the first of it is asked for: who gets an answer at all gets a whole one, or sees it end.
    """
    wanted = set(measured.order_by().values_list("pk", flat=True))
    with part_file(at.part.sha256) as file:
        rows = read_place(file, at.place, [*_OF_CELL, *_OF_BOOT, "id"])
    rows = rows.filter(compute.is_in(rows["id"], pa.array(sorted(wanted), _NUMBER)))
    places: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, cell in enumerate(zip(*(rows[name].to_pylist() for name in _OF_CELL), strict=True)):
        places[cell].append(place)
    # A boot may have told its result when all others had left.
    late: dict[tuple[int, ...], list[tuple[Any, ...]]] = defaultdict(list)
    paths = [_SAMPLES.columns[name][0] for name in (*_OF_CELL, *_OF_BOOT)]
    for row in measured.filter(summarised=False).order_by().values_list(*paths):
        late[row[: len(_OF_CELL)]].append(row[len(_OF_CELL) :])
    return ((cell, _column(rows.take(pa.array(places[cell.ids], _NUMBER)), late[cell.ids])) for cell in cells)


def _column(rows: pa.Table, late: Iterable[tuple[Any, ...]]) -> dict[str, list[Any]]:
    there = zip(*(rows[name].to_pylist() for name in _OF_BOOT), strict=True)
    boots = sorted([*there, *late], key=itemgetter(0))
    return {
        "boots": [position for position, *_ in boots],
        "arms": [arm for _, arm, *_ in boots],
        "judged": [state == BootState.MEASURED for _, _, state, *_ in boots],
        "warmup": [warmup for *_, warmup, _ in boots],
        "values": [values for *_, values in boots],
    }
