"""Like for like: what microarchitectures did in the cases that all of them ran, and what of it each did not run."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from server.reports.composer.told import INCONCLUSIVE, MOVED, REGRESSED, SPLIT, ToldCell, ToldFinding, ToldUarch
from server.reports.composer.vector_words import by_uarch
from server.reports.composer.wording import listed, plain, reach, wrap, wrapped

Key = tuple[str, str, str]
_PAIR = 2
_MOST_NAMES = 6


def in_common(told: ToldFinding) -> str:
    """A sentence about the cases that all those ran which moved; empty where nothing moved in any other.

    The first sentence sets the largest change of each side by side, and these may be of different cases.
    """
    of = by_uarch(told.speaking)
    measured = [uarch for uarch in told.uarchs if of.get(uarch.name)]
    moved = [uarch for uarch in measured if uarch.verdict in (*MOVED, SPLIT)]
    compared = moved if len(moved) >= _PAIR else measured
    ran = [_keys(of[uarch.name]) for uarch in compared]
    if not moved or len(compared) < _PAIR:
        return ""
    shared = ran[0].intersection(*ran)
    if all(_key(cell) in shared for uarch in moved for cell in of[uarch.name] if cell.verdict in MOVED):
        return ""
    who = "both" if len(compared) == _PAIR else f"all {len(compared)}"
    if not shared:
        return f"No case ran on {who}: these are changes of different cases."
    compared.sort(key=lambda uarch: _PLACES.index(uarch.verdict))
    did = [
        f"{plain(uarch.name)} {_did([cell for cell in of[uarch.name] if _key(cell) in shared])}" for uarch in compared
    ]
    cases = "the 1 case" if len(shared) == 1 else f"the {len(shared)} cases"
    if len(did) > _MOST_NAMES:
        return f"Only {len(shared)} of {len(set().union(*ran))} cases ran on {who}."
    return f"In {cases} that {who} ran: {', '.join(did)}.{_elsewhere(of, compared, shared)}"


def _elsewhere(of: Mapping[str, Sequence[ToldCell]], compared: Sequence[ToldUarch], shared: AbstractSet[Key]) -> str:
    """How many losses of the one side the other one cannot speak about: what it would do there nobody knows."""
    if len(compared) != _PAIR:
        return ""
    loser, other = compared
    alone = len(_keys([cell for cell in of[loser.name] if cell.verdict == REGRESSED]) - shared)
    if not alone:
        return ""
    cases = "other case" if alone == 1 else f"{alone} other cases"
    return f" The {cases} slower on {plain(loser.name)} did not run on {plain(other.name)}."


_PLACES = ("regressed", SPLIT, "improved", "unchanged", INCONCLUSIVE)


def _key(cell: ToldCell) -> Key:
    return cell.benchmark, cell.case, cell.metric


def _keys(cells: Sequence[ToldCell]) -> set[Key]:
    return {_key(cell) for cell in cells}


def _did(cells: Sequence[ToldCell]) -> str:
    sides = []
    for verdict in MOVED:
        own = [cell for cell in cells if cell.verdict == verdict and cell.ratio is not None]
        if own:
            some = "" if len(own) == len(cells) else f" in {len(own)} of them"
            sides.append(f"{reach(own, tenths=True)}{some}")
    if sides:
        return " and ".join(sides)
    return "cannot be told" if any(cell.verdict == INCONCLUSIVE for cell in cells) else "no change"


_MOST_UNCOVERED, _MOST_LINES = 12, 3


def uncovered_lines(told: ToldFinding, most: int) -> list[str]:
    """What was not measured and why, as far as anybody knows: a whole sentence, with as many names as have room."""
    lines: list[str] = []
    for names in range(_MOST_UNCOVERED, -1, -1):
        text = _uncovered(told, names) if names else _counted(told)
        lines = wrapped(f"Not covered: {text}.") if text else []
        if len(lines) <= _MOST_LINES:
            break
    gaps = [wrap(gap, first="  ", most=1)[0] for gap in told.gaps]
    if len(gaps) > most:
        gaps = [*gaps[: most - 1], f"  ... {len(gaps) - most + 1} more on the page"]
    return [*(lines or (["Not covered:"] if gaps else [])), *gaps]


def _uncovered(told: ToldFinding, most: int) -> str:
    """At most so many names for each reason."""
    total, partly = _partly(told)
    parts = [
        f"{left}{'' if n else f' of {total} cases'} on {plain(uarch.name)}" for n, (uarch, left) in enumerate(partly)
    ]
    why = " (not configured to run there)" if all(uarch.chosen for uarch, _left in partly) else ""
    alike: dict[str, list[str]] = {}
    for name, reason in told.uncovered:
        alike.setdefault(reason, []).append(plain(name))
    absent = [
        f"all on {listed(names, most)}{f' ({plain(reason)})' if reason else ''}" for reason, names in alike.items()
    ]
    return "; ".join([*([f"{listed(parts, most)}{why}"] if parts else []), *absent])


def _counted(told: ToldFinding) -> str:
    """Where even one name for each reason needs too much room."""
    partly, absent = len(_partly(told)[1]), len(told.uncovered)
    said = [f"some cases on {partly}" if partly else "", f"all cases on {absent}" if absent else ""]
    where = f"of {len(told.uarchs) + absent} microarchitectures"
    return f"{' and '.join(filter(None, said))} {where}" if partly or absent else ""


def _partly(told: ToldFinding) -> tuple[int, list[tuple[ToldUarch, int]]]:
    """How many cases there are, and of microarchitectures that did not run all of them how many are left."""
    of = by_uarch(told.speaking)
    total = len(_keys(told.speaking))
    lefts = [(uarch, total - len(_keys(of[uarch.name]))) for uarch in told.uarchs if of.get(uarch.name)]
    return total, [(uarch, left) for uarch, left in lefts if left]
