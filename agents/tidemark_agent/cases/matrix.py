"""One `[[cases]]` entry of a benchmark.toml may stand for many: its `matrix` is multiplied out here.

server/results/matrix.py does the same for the service; a test keeps the two alike.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The entry without its matrix, once for each combination, with `{key}` filled in wherever text stands.

    The order is that of itertools.product over the keys as they are written. Raises ValueError for a matrix that is no
    table of lists of texts.
    """
    matrix = entry.get("matrix", {})
    plain = {key: value for key, value in entry.items() if key != "matrix"}
    if not isinstance(matrix, dict) or not all(_is_list_of_texts(values) for values in matrix.values()):
        raise ValueError("a matrix is a table of lists of texts")
    for chosen in itertools.product(*matrix.values()):
        words = dict(zip(matrix, chosen, strict=True))
        yield {key: fill(value, words) for key, value in plain.items()}


def fill(value: Any, words: Mapping[str, str]) -> Any:
    """`value` with the known `{key}` replaced in all its texts, however deep; unknown ones stay as they are."""
    if isinstance(value, str):
        return _PLACE.sub(lambda found: words.get(found[1], found[0]), value)
    if isinstance(value, list):
        return [fill(item, words) for item in value]
    if isinstance(value, dict):
        return {fill(key, words): fill(item, words) for key, item in value.items()}
    return value


def _is_list_of_texts(values: object) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)
