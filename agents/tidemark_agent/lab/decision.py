"""What comes next in a session: a decision from values."""

from dataclasses import dataclass
from enum import Enum

from tidemark_agent.boot.evidence import RunningSystem
from tidemark_agent.lab.journal import Progress
from tidemark_agent.wire.assignment import PlannedBoot

# What is to be done next in a session: a pure function of its journal and of the kernel that runs.
#
# Nothing here looks at a clock: after a power cut it may say anything.

CURRENT = "current"
# A boot that left no trace may have been a power cut: the same kernel gets this many more tries.
MOST_SILENT = 3
# Armed, and the machine did not go down: more often than a few kills of the agent explain.
MOST_ARMS = 10
# Back to the safe kernel: if the machine comes up in the test kernel each time, asking again does not help.
MOST_LEAVES = 3


class Step(Enum):
    """One thing to do; the journal then says that it was done."""

    CLAIM = "claim"
    ARM = "arm"
    ENTER = "enter"  # record that the wanted kernel has come up
    MEASURE = "measure"
    WRONG = "wrong"  # a kernel runs that is neither safe nor wanted
    JUDGE = "judge"  # the wanted kernel is gone: find out why
    SPOOL = "spool"
    CLOSE = "close"  # nothing is left to boot
    GIVE_UP = "give-up"
    LEAVE = "leave"  # to the safe kernel
    END = "end"


@dataclass(frozen=True)
class Decision:
    step: Step
    boot: PlannedBoot | None = None
    reason: str = ""


def decide(progress: Progress, running: RunningSystem) -> Decision:
    """The next step of a session that has begun and not ended."""
    waiting = sorted(set(progress.outcomes) - progress.spooled)
    if waiting:
        return Decision(Step.SPOOL, next(boot for boot in progress.job.boots if boot.position == waiting[0]))
    if progress.closing is not None:
        if running.is_test_kernel and progress.leaves < MOST_LEAVES:
            return Decision(Step.LEAVE)
        return Decision(Step.END)
    return _decide_next(progress, running) if progress.assignment else Decision(Step.CLAIM)


def _decide_next(progress: Progress, running: RunningSystem) -> Decision:
    trouble = next((o["reason"] for o in progress.outcomes.values() if o["outcome"] == "infrastructure"), None)
    if trouble is not None:
        # The next boot would meet the same trouble and use up its tries.
        return Decision(Step.CLOSE, reason=trouble or "trouble of ours")
    boot = progress.next_boot()
    if boot is None:
        return Decision(Step.CLOSE)
    if progress.job.boot_driver == CURRENT:
        return _decide_current(progress, running, boot)
    return _decide_boot(progress, running, boot)


def _decide_boot(progress: Progress, running: RunningSystem, boot: PlannedBoot) -> Decision:
    armed = progress.armed
    if armed is None:
        return Decision(Step.ARM, boot)
    if running.boot_id == armed.boot_id:
        if progress.arms >= MOST_ARMS:
            return Decision(
                Step.GIVE_UP, boot, f"the machine did not reboot, though it was asked {progress.arms} times"
            )
        return Decision(Step.ARM, boot)
    if running.nonce == armed.nonce:
        return _decide_inside(progress, running, boot)
    if running.is_test_kernel or running.build_id == progress.safe_build_id or progress.booted is not None:
        # A nonce of ours that is not this one: the boot loader read what a power cut left of an earlier boot.
        return Decision(Step.JUDGE, boot)
    return Decision(Step.WRONG, boot)


def _decide_inside(progress: Progress, running: RunningSystem, boot: PlannedBoot) -> Decision:
    """What runs is the boot that was armed: is it the kernel that was wanted?"""
    if running.build_id != progress.job.kernels[boot.arm].build_id:
        return Decision(Step.WRONG, boot)
    booted = progress.booted
    if booted is None:
        return Decision(Step.ENTER, boot)
    if booted.boot_id != running.boot_id:
        # The machine was reset and came up in the same kernel once more, which a one-shot boot must not do.
        return Decision(Step.JUDGE, boot)
    return Decision(Step.MEASURE, boot)


def _decide_current(progress: Progress, running: RunningSystem, boot: PlannedBoot) -> Decision:
    """No reboot: what runs is measured, if it is what was wanted."""
    if progress.armed is None:
        return Decision(Step.ARM, boot)
    if running.build_id != progress.job.kernels[boot.arm].build_id:
        return Decision(Step.WRONG, boot)
    booted = progress.booted
    if booted is None:
        return Decision(Step.ENTER, boot)
    if booted.boot_id != running.boot_id:
        # The machine went down while it measured. Should the kernel die of it each time, that must have an end.
        return Decision(Step.JUDGE, boot)
    return Decision(Step.MEASURE, boot)
