"""Preparing a machine and putting it back, also after an agent that was killed."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidemark_agent.errors import StoppedError
from tidemark_agent.log import Log
from tidemark_agent.prepare.changer import Changer, Held
from tidemark_agent.prepare.files import KernelFiles, SettingError
from tidemark_agent.prepare.journal import Journal
from tidemark_agent.prepare.kinds import Programs, SystemPrograms, system_kinds
from tidemark_agent.prepare.model import (
    AgentCpus,
    CannotMeasureError,
    Layout,
    PrepareConfig,
    Setting,
    cpu_list,
    read_layout,
)
from tidemark_agent.prepare.wishes import boot_words, case_wishes, drop_caches_level, machine_wishes, wants_sync
from tidemark_agent.system.disk import try_lock

JOURNAL_NAME = "settings.jsonl"
_BOOT_ID = "proc/sys/kernel/random/boot_id"
_DROP_CACHES = "proc/sys/vm/drop_caches"
# Another agent that is just ending needs this long to put things back.
_LOCK_SECONDS = 5.0


class Preparation:
    """One per boot: `replay`, then `apply`, `case` for each case with `verify` after it, `restore`.

    The journal is held against other processes from `apply` to `restore`. `files` and `programs` are for tests.
    """

    def __init__(
        self,
        config: PrepareConfig,
        *,
        journal: Path,
        log: Log,
        stop: threading.Event,
        root: Path = Path("/"),
        files: KernelFiles | None = None,
        programs: Programs | None = None,
    ) -> None:
        self._config = config
        self._log = log
        self._stop = stop
        self._files = files or KernelFiles(root)
        self._is_this_system = root == Path("/")
        self._path = journal
        self._kinds = system_kinds(self._files, programs or SystemPrograms(journal.parent))
        self._lock: int | None = None
        self._changer: Changer | None = None
        self._layout: Layout | None = None
        self._agent_cpus = AgentCpus()
        self._changed_by_cases: list[str] = []
        self._found: list[str] = []

    def replay(self) -> tuple[str, ...]:
        """Put back what a killed agent left; what could not be, or was not for a reason. Harmless at any time."""
        return self.restore() if self._changer is None else ()

    def apply(self) -> tuple[Setting, ...]:
        """Machine-level settings, verified. Raises CannotMeasureError after everything is as it was again."""
        try:
            changer = self._open()
            self._layout = read_layout(self._files, self._config.housekeeping_cpus)
            settings = [self._layout.as_setting(), *boot_words(self._files)]
            if self._layout.housekeeping and self._is_this_system:
                settings.append(self._agent_cpus.confine(self._layout))
            for wish in machine_wishes(self._files, self._layout, self._config.quiet_services):
                if self._stop.is_set():
                    raise StoppedError("stopped while the machine was prepared")
                settings.append(changer.establish(wish))
        except OSError as error:
            self.restore()
            raise CannotMeasureError(f"settings cannot be noted, so they are not changed: {error}") from error
        except BaseException:
            self.restore()
            raise
        for setting in settings:
            self._log.info("setting", **setting.as_json())
        return tuple(settings)

    @contextmanager
    def case(self, wants: Mapping[str, Any]) -> Iterator[tuple[Setting, ...]]:
        """What one case wants on top, until the end of the `with`; raises CannotMeasureError if it cannot be had."""
        changer = self._open()
        held = list(changer.held)
        begun = {step.number for step in changer.steps}
        try:
            level, sync = drop_caches_level(wants), wants_sync(wants)
            settings = [changer.establish(wish) for wish in case_wishes(wants, self._files)]
            settings += self._settle(sync=sync, level=level)
        except OSError as error:
            self._end_case(changer, begun, held)
            raise CannotMeasureError(f"settings cannot be noted, so they are not changed: {error}") from error
        except BaseException:
            self._end_case(changer, begun, held)
            raise
        try:
            yield tuple(settings)
        finally:
            self._end_case(changer, begun, held)

    def verify(self) -> tuple[str, ...]:
        """After a case: which needed settings did not stay as they were set. They are set again for the next case.

        What is returned makes the case's values no measurement; CannotMeasureError if a setting is lost for good.
        """
        changes, self._changed_by_cases = self._changed_by_cases, []
        changer = self._open()
        for held, part, now in changer.changed():
            text = f"{held.wish.name}: {part.target} was set to {part.wanted!r} and is {now!r} now"
            self._log.warning("setting-changed", setting=held.wish.name, reason=text)
            is_needed = held.wish.needed and held.wish.name not in self._config.tolerate
            try:
                changer.assert_again(part)
            except SettingError as error:
                if is_needed:
                    raise CannotMeasureError(f"{text}; it cannot be set again: {error}") from error
            if is_needed:
                changes.append(text)
        return tuple(changes)

    def restore(self) -> tuple[str, ...]:
        """Everything as it was before, verified, also what an earlier agent left; the problems. Never raises."""
        problems: list[str] = []
        try:
            changer = self._open()
            for step in reversed(changer.steps):
                problems += changer.undo(step)
            changer.close()
        except (CannotMeasureError, OSError) as error:
            problems.append(str(error))
        problems += self._agent_cpus.release()
        for problem in problems:
            self._log.warning("setting-not-restored", reason=problem)
        found, self._found = self._found, []
        self._changer = self._layout = None
        self._changed_by_cases.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return tuple(dict.fromkeys((*found, *problems)))

    def measured_cpus(self) -> str:
        """The online CPUs that are not housekeeping, as a list; raises CannotMeasureError."""
        layout = self._layout or read_layout(self._files, self._config.housekeeping_cpus)
        return cpu_list(layout.measured)

    def _open(self) -> Changer:
        """Hold the journal; what an agent left in this boot is put back first."""
        if self._changer is not None:
            return self._changer
        boot_id = self._files.text(_BOOT_ID)
        if not boot_id:
            raise CannotMeasureError(
                f"/{_BOOT_ID} cannot be read: settings could not be told from those of another boot"
            )
        if self._lock is None:
            self._lock = try_lock(self._path.with_name(f"{self._path.name}.lock"), patience=_LOCK_SECONDS)
        if self._lock is None:
            raise CannotMeasureError("another agent has prepared this machine and not put it back yet")
        journal = Journal(self._path, boot_id)
        found = list(journal.load())
        if journal.forgotten:
            self._log.info("settings-dropped", settings=journal.forgotten, reason="the machine has been booted since")
        changer = Changer(self._kinds, journal, tolerate=self._config.tolerate, log=self._log)
        for step in reversed(changer.steps):
            self._log.info("setting-replayed", setting=step.name)
            found += changer.undo(step)
        for problem in found:
            self._log.warning("setting-not-restored", reason=problem)
        self._found += found
        self._changer = changer
        return changer

    def _settle(self, *, sync: bool, level: int) -> list[Setting]:
        """Write out what is dirty, and drop caches where the case wants a cold start."""
        settings = []
        if sync and self._is_this_system:
            os.sync()
            settings.append(Setting("sync", "on", "", "on", "set"))
        if level:
            try:
                self._files.write(_DROP_CACHES, str(level))
            except SettingError as error:
                raise CannotMeasureError(f"drop-caches: {error}") from error
            settings.append(Setting("drop-caches", str(level), "", str(level), "set"))
        return settings

    def _end_case(self, changer: Changer, begun: set[int], held: list[Held]) -> None:
        ours = [item for item in changer.held if item not in held]
        for item, part, now in changer.changed():
            if item in ours and item.wish.needed:
                text = f"{item.wish.name}: {part.target} was set to {part.wanted!r} and is {now!r} now"
                self._changed_by_cases.append(text)
        for step in reversed(changer.steps):
            if step.number not in begun:
                self._changed_by_cases += changer.undo(step, force=True)
        changer.held = held


_PROBLEMS = 1


def restore_settings(state: Path, *, root: Path = Path("/")) -> int:
    """Exit status 0 if everything is as it was, 1 with the problems on stderr if something is not."""
    journal = state / JOURNAL_NAME
    if not journal.exists():
        print(f"nothing to restore: {journal} does not exist")
        return 0
    preparation = Preparation(PrepareConfig(), journal=journal, log=Log(), stop=threading.Event(), root=root)
    problems = preparation.replay()
    for problem in problems:
        print(f"tidemark-agent: {problem}", file=sys.stderr)
    if problems:
        return _PROBLEMS
    print("restored")
    return 0
