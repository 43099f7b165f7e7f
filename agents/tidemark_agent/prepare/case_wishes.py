"""What a case asks for in benchmark.toml (`settings`), read as wishes; anything strange is refused, never guessed."""

from collections.abc import Callable, Mapping
from typing import Any

from tidemark_agent.prepare.boot_words import kaslr_state
from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.huge_pages import huge_pages
from tidemark_agent.prepare.memory import ASLR, NUMA_BALANCING, THP
from tidemark_agent.prepare.model import CannotMeasureError
from tidemark_agent.prepare.wishes import Want, Wish

_THP_MODES = ("always", "madvise", "never")
_THP_SIZE_MODES = ("always", "inherit", "madvise", "never")
_DEFRAG_MODES = ("always", "defer", "defer+madvise", "madvise", "never")
_ACTIONS = {"sync", "drop_caches"}


def case_wishes(wants: Mapping[str, Any], files: KernelFiles) -> tuple[Wish, ...]:
    """In the order in which they are to be set; raises CannotMeasureError for what nobody can set."""
    if strange := sorted(str(name) for name in wants if name not in _READERS and name not in _ACTIONS):
        raise CannotMeasureError(f"the case wants settings that this agent does not know: {', '.join(strange)}")
    return tuple(wish for name, read in _READERS.items() if name in wants for wish in read(wants[name], files))


def drop_caches_level(wants: Mapping[str, Any]) -> int:
    """1: page cache, 2: slab, 3 or true: both; 0: nothing is dropped."""
    level = wants.get("drop_caches", 0)
    level = (3 if level else 0) if isinstance(level, bool) else level
    if level not in (0, 1, 2, 3):
        raise CannotMeasureError(f"the case wants drop_caches = {level!r}: 1, 2, 3 or true were possible")
    return int(level)


def wants_sync(wants: Mapping[str, Any]) -> bool:
    """By default yes: what an earlier case left to be written would be written while this one runs."""
    return _switch("sync", wants.get("sync", True)) == "on"


def _aslr(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    state = _switch("aslr", value)
    want = Want("word", ASLR, "2" if state == "on" else "0")
    return (Wish("aslr", state, (want,), absent_is_fine=False),)


def _kaslr(value: Any, files: KernelFiles) -> tuple[Wish, ...]:
    state = _switch("kaslr", value)
    if state != kaslr_state(files):
        word = "nokaslr is missing there" if state == "off" else "nokaslr stands there"
        raise CannotMeasureError(f"kaslr {state} is wanted, but the kernel's command line says otherwise: {word}")
    return ()


def _thp(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    mode = _one_of("thp", value, _THP_MODES)
    return (Wish("thp", mode, (Want("word", f"{THP}/enabled", mode),), absent_is_fine=mode == "never"),)


def _thp_defrag(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    mode = _one_of("thp_defrag", value, _DEFRAG_MODES)
    return (Wish("thp-defrag", mode, (Want("word", f"{THP}/defrag", mode),), absent_is_fine=mode == "never"),)


def _thp_sizes(value: Any, files: KernelFiles) -> tuple[Wish, ...]:
    if not isinstance(value, Mapping):
        raise CannotMeasureError(
            f"the case wants thp_sizes = {value!r}: a table such as {{64 = 'always'}} was expected"
        )
    parts = []
    for size, mode in value.items():
        target = f"{THP}/hugepages-{size}kB/enabled"
        _one_of(f"thp_sizes.{size}", mode, _THP_SIZE_MODES)
        if not str(size).isdecimal() or (mode != "never" and files.text(target) == ""):
            raise CannotMeasureError(f"thp_sizes cannot be set: this kernel has no folios of {size} kB for programs")
        parts.append(Want("word", target, str(mode)))
    wanted = " ".join(f"{size}={mode}" for size, mode in value.items())
    return (Wish("thp-sizes", wanted, tuple(parts)),)


def _numa_balancing(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    state = _switch("numa_balancing", value)
    want = Want("word", NUMA_BALANCING, "1" if state == "on" else "0")
    return (Wish("numa-balancing", state, (want,), absent_is_fine=state == "off"),)


def _switch(name: str, value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else _one_of(name, value, ("on", "off"))


def _one_of(name: str, value: Any, possible: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in possible:
        raise CannotMeasureError(f"the case wants {name} = {value!r}: {', '.join(possible)} were possible")
    return value


# Huge pages last: the settings before them decide what memory is free.
_READERS: Mapping[str, Callable[[Any, KernelFiles], tuple[Wish, ...]]] = {
    "kaslr": _kaslr,
    "aslr": _aslr,
    "numa_balancing": _numa_balancing,
    "thp": _thp,
    "thp_defrag": _thp_defrag,
    "thp_sizes": _thp_sizes,
    "huge_pages": huge_pages,
}
