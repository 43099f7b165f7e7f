"""Measurements as Arrow IPC streams and as Parquet files, record batch by record batch: memory holds one of them.

Names are dictionaries that hold all of their values from the first batch on: no reader has to replace one.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from server.results.models import Measurement
from server.results.samples import SampledCell

# Values of a batch that is made of them, one a row.
_VALUES = 65_536
_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES: Mapping[str, pa.DataType] = {
    "id": pa.int64(),
    "session": pa.int64(),
    "position": pa.int32(),
    "boot": pa.int32(),
    "run": pa.int32(),
    "virtual": pa.bool_(),
    "evidence": pa.bool_(),
    "judged": pa.bool_(),
    "recorded_at": pa.timestamp("us", tz="UTC"),
    "value": pa.float64(),
    "values": pa.list_(pa.float64()),
}
Columns = Iterator[tuple[SampledCell, dict[str, list[Any]]]]


def measurement_stream(
    form: str, batches: Iterable[Sequence[Measurement]], names: Sequence[str], read: Mapping[str, Callable[[Any], Any]]
) -> Iterator[bytes]:
    """A row for each measurement, its values as a list. `read` tells the fields of a row; texts as they stand."""
    schema = pa.schema([(name, _TYPES.get(name, pa.int32() if name == "warmup" else pa.string())) for name in names])

    def made() -> Iterator[pa.RecordBatch]:
        for rows in batches:
            columns = [pa.array([read[name](row) for row in rows], schema.field(name).type) for name in names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return _written(form, schema, made())


def sample_stream(
    form: str, head: Mapping[str, Any], cells: Sequence[SampledCell], columns: Columns, names: Sequence[str]
) -> Iterator[bytes]:
    """A row for each value; `warmup` says whether it is one of those that are not judged."""
    words = _words(head, cells)
    kinds = {**_TYPES, **dict.fromkeys(words, _TEXT), "warmup": pa.bool_()}
    schema = pa.schema([(name, kinds[name]) for name in names])
    places = {name: {word: place for place, word in enumerate(known)} for name, known in words.items()}
    dictionaries = {name: pa.array(known, pa.string()) for name, known in words.items()}

    def column(name: str, boots: Sequence[Mapping[str, Any]], lengths: Any) -> pa.Array:
        if name == "value":
            return pa.array(np.concatenate([boot["values"] for boot in boots]))
        runs = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        if name == "run":
            return pa.array(runs, pa.int32())
        if name == "warmup":
            return pa.array(runs < np.repeat([boot["warmup"] for boot in boots], lengths))
        if name in words:
            found = np.repeat([places[name][boot[name]] for boot in boots], lengths)
            return pa.DictionaryArray.from_arrays(pa.array(found, pa.int32()), dictionaries[name])
        return pa.array(np.repeat([boot[name] for boot in boots], lengths), kinds[name])

    def made() -> Iterator[pa.RecordBatch]:
        for boots in _some(head, columns):
            lengths = np.array([len(boot["values"]) for boot in boots])
            yield pa.RecordBatch.from_arrays([column(name, boots, lengths) for name in names], schema=schema)

    return _written(form, schema, made())


def _words(head: Mapping[str, Any], cells: Sequence[SampledCell]) -> dict[str, list[str]]:
    """Every text that a column can have."""
    found = {"clock": [str(head["clock"])], "arm": ["base", "patched"]}
    for name in ("benchmark", "case", "metric", "unit", "better", "core_type"):
        found[name] = sorted({getattr(cell, name) for cell in cells})
    return found


def _some(head: Mapping[str, Any], columns: Columns) -> Iterator[list[dict[str, Any]]]:
    """Boots with their cells, as many as make a batch."""
    boots: list[dict[str, Any]] = []
    size = 0
    for cell, column in columns:
        told = zip(column["boots"], column["arms"], column["judged"], column["warmup"], column["values"], strict=True)
        for boot, arm, judged, warmup, values in told:
            if boots and size + len(values) > _VALUES:
                yield boots
                boots, size = [], 0
            own = {"boot": boot, "arm": arm, "judged": judged, "warmup": warmup, "values": values}
            boots.append({**head, **cell.names, **own})
            size += len(values)
    if boots:
        yield boots


def _written(form: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    sink = io.BytesIO()
    out = pa.PythonFile(sink, mode="w")
    with pa.ipc.new_stream(out, schema) if form == "arrow" else parquet.ParquetWriter(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            if chunk := _drained(sink):
                yield chunk
    yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    chunk = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return chunk
