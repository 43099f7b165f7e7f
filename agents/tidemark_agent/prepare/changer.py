"""Changes one setting at a time: announce, set, read back; and puts it back, unless somebody else changed it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_agent.errors import file_trouble
from tidemark_agent.log import Log
from tidemark_agent.prepare.files import SettingError
from tidemark_agent.prepare.journal import Journal, Part, Step
from tidemark_agent.prepare.kinds import Kind
from tidemark_agent.prepare.model import CannotMeasureError, Outcome, Setting
from tidemark_agent.prepare.wishes import Wish

# A summary of a hundred interrupts that differ is cut: the journal has them all.
_MOST_TEXT = 200
_MOST_REASONS = 5


@dataclass(frozen=True)
class Held:
    """A wish that was granted: the values that must stay so, by kind and target, and how it was reached."""

    wish: Wish
    values: Mapping[tuple[str, str], str]
    step: Step | None


class Changer:
    def __init__(self, kinds: Mapping[str, Kind], journal: Journal, *, tolerate: frozenset[str], log: Log) -> None:
        self._kinds = kinds
        self._journal = journal
        self._tolerate = tolerate
        self._log = log
        self.held: list[Held] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is still to be put back, oldest first."""
        return self._journal.steps

    def close(self) -> None:
        self._journal.close()

    def establish(self, wish: Wish) -> Setting:
        """Have it so; raises CannotMeasureError if it is needed and cannot be had, OSError if nothing can be noted."""
        parts, troubles = self._look(wish)
        if not parts and not troubles:
            return self._absent(wish)
        before = tuple(part.before for part in parts)
        after: tuple[str | None, ...] = before
        step = None
        if any(part.is_set and part.before != part.wanted for part in parts):
            step = self._journal.begin(wish.name, parts)
            troubles += self._write(parts)
            after = tuple(self._value(part) for part in parts)
            step = self._journal.settle(step, after)
            troubles = troubles or _differences(parts, after)
        values = {
            (part.kind, part.target): value
            for part, value in zip(parts, after, strict=True)
            if value is not None and part.is_set and value == part.wanted
        }
        self.held.append(Held(wish, values, step))
        note = "; ".join(troubles[:_MOST_REASONS])
        if troubles and wish.needed and wish.name not in self._tolerate:
            raise CannotMeasureError(f"{wish.name} cannot be set to {wish.wanted}: {note}")
        outcome: Outcome = "tolerated" if troubles else "set" if step else "kept"
        return Setting(wish.name, wish.wanted, _summary(parts, before), _summary(parts, after), outcome, note)

    def undo(self, step: Step, *, force: bool = False) -> tuple[str, ...]:
        """Put one change back, last part first. What could not be stays in the journal for the next try.

        A value that is neither as it was nor as we set it is somebody else's and left alone, unless `force`: during a
        case the machine is ours, and whatever the case changed goes back.
        """
        problems: list[str] = []
        failed = left = False
        after = step.after or (None,) * len(step.parts)
        for part, ours in reversed(tuple(zip(step.parts, after, strict=True))):
            try:
                now = self._kinds[part.kind].read(part.target)
                if now is None or now == part.before:
                    continue
                if part.dependent and left:
                    continue
                # Without a value read back nobody knows how far the change got: it is ours then.
                if not part.dependent and not force and ours is not None and now != ours:
                    left = True
                    problems.append(
                        f"{step.name}: {part.target} was set to {ours!r} and is {now!r} now:"
                        f" somebody else changed it, so it is not put back to {part.before!r}"
                    )
                    continue
                self._kinds[part.kind].write(part.target, part.before)
                now = self._kinds[part.kind].read(part.target)
                if now != part.before:
                    raise SettingError(f"{part.target} is {now!r} after it was put back to {part.before!r}")
            except SettingError as error:
                failed = True
                problems.append(f"{step.name}: {error}")
        if not failed:
            try:
                self._journal.undone(step)
            except OSError as error:
                self._log.warning("settings-journal", reason=file_trouble(error))
        self.held = [held for held in self.held if held.step is None or held.step.number != step.number]
        return tuple(problems)

    def changed(self) -> tuple[tuple[Held, Part, str], ...]:
        """Values that are no longer as they were set, with what they are now; a later wish for a thing is the valid."""
        valid = {key: (held, value) for held in self.held for key, value in held.values.items()}
        found = []
        for (kind, target), (held, value) in valid.items():
            now = self._value(Part(kind, target, "", value))
            if now != value:
                found.append((held, Part(kind, target, before=now or "", wanted=value), now or "missing"))
        return tuple(found)

    def assert_again(self, part: Part) -> None:
        """Set a value once more that the journal already knows how to put back; raises SettingError."""
        self._kinds[part.kind].write(part.target, part.wanted)
        if (now := self._kinds[part.kind].read(part.target)) != part.wanted:
            raise SettingError(f"{part.target} is {now!r} after it was set to {part.wanted!r} again")

    def _absent(self, wish: Wish) -> Setting:
        note = wish.absence or "this system has no such thing"
        if wish.absent_is_fine or not wish.needed:
            return Setting(wish.name, wish.wanted, "", "", "unavailable", note)
        if wish.name in self._tolerate:
            return Setting(wish.name, wish.wanted, "", "", "tolerated", note)
        raise CannotMeasureError(f"{wish.name} cannot be set to {wish.wanted}: {note}")

    def _look(self, wish: Wish) -> tuple[tuple[Part, ...], list[str]]:
        parts, troubles = [], []
        for want in wish.parts:
            try:
                before = self._kinds[want.kind].read(want.target)
            except SettingError as error:
                troubles.append(str(error))
                continue
            if before is not None:
                parts.append(Part(want.kind, want.target, before, want.value, want.dependent))
        return tuple(parts), troubles

    def _write(self, parts: tuple[Part, ...]) -> list[str]:
        troubles = []
        for part in parts:
            if not part.is_set or part.before == part.wanted:
                continue
            try:
                self._kinds[part.kind].write(part.target, part.wanted)
            except SettingError as error:
                troubles.append(str(error))
        return troubles

    def _value(self, part: Part) -> str | None:
        try:
            return self._kinds[part.kind].read(part.target)
        except SettingError as error:
            self._log.warning("setting-unreadable", target=part.target, reason=str(error))
            return None


def _differences(parts: tuple[Part, ...], after: tuple[str | None, ...]) -> list[str]:
    return [
        f"{part.target} {'cannot be read' if value is None else f'is {value!r}'} after it was set to {part.wanted!r}"
        for part, value in zip(parts, after, strict=True)
        if part.is_set and value != part.wanted
    ]


def _summary(parts: tuple[Part, ...], values: tuple[str | None, ...]) -> str:
    """The value if all parts have the same, else each with the name of its part."""
    seen = [(part, value) for part, value in zip(parts, values, strict=True) if part.is_set]
    if len({value for _, value in seen}) == 1:
        return str(seen[0][1])
    text = " ".join(f"{_short(part.target)}={value}" for part, value in seen)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def _short(target: str) -> str:
    """What tells a target from its like: `policy0`, `41`, `/dev/sda2`."""
    pieces = target.split("/")
    return pieces[-2] if target.startswith(("sys/", "proc/")) else target
