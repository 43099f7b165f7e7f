"""One `[[cases]]` entry of a benchmark.toml may stand for many: its `matrix` is multiplied out here.

The agent does the same (agents/tidemark_agent/cases/matrix.py), of which it knows nothing; a test keeps the two alike.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The entry without its matrix, once for each combination, with `{key}` filled in in its name and title.

    Raises ValueError for a matrix that is no table of lists of texts.
    """
    matrix = entry.get("matrix", {})
    if not isinstance(matrix, dict) or not all(_is_list_of_texts(values) for values in matrix.values()):
        raise ValueError("a matrix is a table of lists of texts")
    for chosen in itertools.product(*matrix.values()):
        words = dict(zip(matrix, chosen, strict=True))
        texts = {key: _fill(str(entry[key]), words) for key in ("name", "title")}
        yield {**{key: value for key, value in entry.items() if key != "matrix"}, **texts}


def _fill(text: str, words: Mapping[str, str]) -> str:
    """`text` with the known `{key}` replaced; unknown ones stay as they are."""
    return _PLACE.sub(lambda found: words.get(found[1], found[0]), text)


def _is_list_of_texts(values: object) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)
