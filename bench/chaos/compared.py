"""What was put in beside what is there: lost, doubled, changed, and what nobody put in."""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

# Where a value stands: session, position of the boot in it, case, metric, kind of cores.
Cell = tuple[int, int, str, str, str]
Numbers = tuple[float, ...]


@dataclass
class Differences:
    """Names of what differs, by how."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def are_none(self) -> bool:
        return not (self.lost or self.doubled or self.changed or self.unknown)

    def __str__(self) -> str:
        counted = {name: len(found) for name, found in vars(self).items()}
        first = next((found[0] for found in vars(self).values() if found), "")
        told = ", ".join(f"{count} {name}" for name, count in counted.items())
        return f"{told}: {first}" if first else told


def compare_values(
    sent: Mapping[Cell, AbstractSet[Numbers]], acknowledged: Iterable[Cell], stored: Iterable[tuple[Cell, Numbers]]
) -> Differences:
    """Each acknowledged value is there once, as it was sent; what is there was sent, whether its answer came or not."""
    found, differences = Counter[Cell](), Differences()
    for cell, numbers in stored:
        found[cell] += 1
        if cell not in sent:
            differences.unknown.append(str(cell))
        elif numbers not in sent[cell]:
            differences.changed.append(str(cell))
    differences.lost = [str(cell) for cell in dict.fromkeys(acknowledged) if cell not in found]
    differences.doubled = [str(cell) for cell, count in found.items() if count > 1]
    return differences


def compare_once(put_in: Iterable[str], there: Iterable[str], *, others: bool = False) -> Differences:
    """Each name is there once; with `others`, names are there that nobody put in."""
    wanted, found = set(put_in), Counter(there)
    return Differences(
        lost=sorted(wanted - found.keys()),
        doubled=sorted(name for name, count in found.items() if count > 1 and name in wanted),
        unknown=[] if others else sorted(found.keys() - wanted),
    )
