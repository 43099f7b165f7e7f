"""scipy's functions. A part of it is loaded when the first of its functions is asked for: web and beat, which name the
statistics and compute nothing with them, do without its 50 MB and its second of every start.
"""

from importlib import import_module
from typing import Any


class _Part:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)
        return found


special: Any = _Part("scipy.special")
optimize: Any = _Part("scipy.optimize")
# For ranks with ties and for large samples alone; the largest part by far.
stats: Any = _Part("scipy.stats")


def load_usual() -> None:
    """What every judgement asks for, for a process whose children are to share it."""
    import_module("scipy.special")
    import_module("scipy.optimize")
