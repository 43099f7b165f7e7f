"""The heat map: which benchmark moved on which microarchitecture, at a glance."""

from dataclasses import dataclass

from server.dashboard.pictures import axis
from server.dashboard.pictures.fingerprint import CHANGES, SIGNS, Column

# Up to so many columns a cell has room for its size beside its sign.
_ROOMY = 12
# Logarithms of speeds: about 2, 5, 15, 40 % and more.
_BINS = (0.02, 0.05, 0.14, 0.34)
_LONG = 60
_WORDS = {"unchanged": "no change"}


@dataclass(frozen=True, slots=True)
class Heat:
    """`change` is the logarithm of a speed, above 0 is better; `finding` an open one; `split`: its cases disagree."""

    change: float | None
    verdict: str
    said: str
    href: str = ""
    stale_days: int = 0
    finding: int | None = None
    split: bool = False
    words: str = ""

    @property
    def classes(self) -> str:
        """How strong the fill is, and what stands on it."""
        found = [self.verdict, self._strength()]
        found += ["stale"] if self.stale_days else []
        found += ["open"] if self.finding is not None else []
        found += ["both"] if self.split else []
        return " ".join(name for name in found if name)

    def _strength(self) -> str:
        """Of no claim none: the hatching of an inconclusive cell is not tinted either."""
        if not self.change or self.verdict not in CHANGES:
            return ""
        side = "b" if self.change > 0 else "w"
        return f"{side}{sum(abs(self.change) >= edge for edge in _BINS)}"

    @property
    def sign(self) -> str:
        return SIGNS.get(self.verdict, "·")

    @property
    def text(self) -> str:
        """The size in words, or as a factor."""
        if self.change is None or self.verdict not in CHANGES:
            return _WORDS.get(self.verdict, self.verdict)
        return self.words or f"{axis.factor(self.change)} {axis.direction(self.change)}".strip()

    @property
    def told(self) -> str:
        """What a pointer and a screen reader get."""
        words = [self.said]
        words += [f"stale: {self.stale_days} days old"] if self.stale_days else []
        if self.finding is not None:
            words.append(f"finding {self.finding} is open")
            if self.verdict not in CHANGES:
                words.append("it was judged by more boots, of the two heads beside its change")
        return "; ".join(words)


@dataclass(frozen=True, slots=True)
class HeatRow:
    """`disagrees`: it got better in some columns and worse in others."""

    label: str
    about: str
    cells: tuple[Heat | None, ...]
    href: str = ""
    disagrees: bool = False


@dataclass(frozen=True, slots=True)
class HeatMap:
    columns: tuple[Column, ...]
    rows: tuple[HeatRow, ...]
    caption: str

    @property
    def width(self) -> str:
        return "roomy" if len(self.columns) <= _ROOMY else "tight"

    @property
    def length(self) -> str:
        """A long one scrolls in its own box, and what is out of sight there is not laid out."""
        return "long" if len(self.rows) > _LONG else "short"
