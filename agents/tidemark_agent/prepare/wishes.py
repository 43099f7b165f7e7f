"""What is wanted of the machine, before anybody has looked how it is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Want:
    """One value: kind (see kinds.py), which thing, and how it is to be; `dependent` as in steps.Part."""

    kind: str
    target: str
    value: str
    dependent: bool = False


@dataclass(frozen=True)
class Wish:
    """One setting by its name, made of one or many values.

    `needed` says that measuring without it is refused (unless the operator tolerates that); `absent_is_fine` that a
    system which has no such thing is as good as one where it is set; `absence` is what to tell people in that case.
    """

    name: str
    wanted: str
    parts: tuple[Want, ...]
    needed: bool = True
    absent_is_fine: bool = True
    absence: str = ""
