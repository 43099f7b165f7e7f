"""The table of decisions, all of it."""

import itertools

import pytest
from tidemark_agent.boot.evidence import RunningSystem
from tidemark_agent.lab.engine import MOST_ARMS, MOST_LEAVES, Step, decide
from tidemark_agent.lab.journal import Armed, Booted, Progress
from tidemark_agent.wire.assignment import read_assignment

from tests.agent.lab.world import KERNELS, SAFE, session_document

BEFORE, NOW, OTHER = "boot-before", "boot-now", "boot-other"
NONCE, STRANGE = "nonce", "another-nonce"


def progress(*, driver: str = "kexec", armed_in: str | None = None, booted_in: str | None = None) -> Progress:
    made = Progress(key="k", agent="a", safe_build_id=SAFE)
    made.assignment = read_assignment(session_document(boots=2, driver=driver))
    made.armed = Armed(NONCE, armed_in, ()) if armed_in else None
    made.booted = Booted(NONCE, booted_in, 0.0) if booted_in else None
    return made


def running(build_id: str, nonce: str) -> RunningSystem:
    return RunningSystem(NOW, build_id, nonce, "")


@pytest.mark.parametrize(
    ("armed_in", "booted_in", "build_id", "nonce", "step"),
    [
        # Nothing is armed: the boot begins, wherever we are.
        (None, None, SAFE, "", Step.ARM),
        (None, None, KERNELS["patched"], STRANGE, Step.ARM),
        # Armed in this very boot: the machine did not go down.
        (NOW, None, SAFE, "", Step.ARM),
        (NOW, None, KERNELS["patched"], STRANGE, Step.ARM),
        # The boot that was armed.
        (BEFORE, None, KERNELS["base"], NONCE, Step.ENTER),
        (BEFORE, NOW, KERNELS["base"], NONCE, Step.MEASURE),
        (BEFORE, OTHER, KERNELS["base"], NONCE, Step.JUDGE),
        # It has the nonce, but it is another kernel.
        (BEFORE, None, KERNELS["patched"], NONCE, Step.WRONG),
        (BEFORE, None, "", NONCE, Step.WRONG),
        (BEFORE, None, SAFE, NONCE, Step.WRONG),
        # The safe kernel came up instead, before or after the agent had been in the wanted one.
        (BEFORE, None, SAFE, "", Step.JUDGE),
        (BEFORE, OTHER, SAFE, "", Step.JUDGE),
        # An earlier boot of ours that the boot loader dug out.
        (BEFORE, None, KERNELS["base"], STRANGE, Step.JUDGE),
        (BEFORE, None, KERNELS["patched"], STRANGE, Step.JUDGE),
        # Neither safe nor ours.
        (BEFORE, None, "e15e", "", Step.WRONG),
        (BEFORE, None, KERNELS["base"], "", Step.WRONG),
        (BEFORE, OTHER, "e15e", "", Step.JUDGE),
    ],
)
def test_first_boot_is_decided_by_boot_id_nonce_and_build_id(
    armed_in: str | None, booted_in: str | None, build_id: str, nonce: str, step: Step
) -> None:
    decision = decide(progress(armed_in=armed_in, booted_in=booted_in), running(build_id, nonce))
    assert (decision.step, decision.boot and decision.boot.position) == (step, 0)


def test_session_that_has_not_been_claimed_is_claimed_wherever_we_are() -> None:
    for build_id, nonce in itertools.product((SAFE, "e15e"), ("", STRANGE)):
        assert decide(Progress(key="k"), running(build_id, nonce)).step is Step.CLAIM


def test_outcome_goes_into_the_spool_before_anything_else() -> None:
    made = progress(armed_in=BEFORE)
    made.outcomes = {0: {"outcome": "measured", "reason": ""}}
    made.closing = ("done", "")
    decision = decide(made, running(KERNELS["base"], NONCE))
    assert (decision.step, decision.boot and decision.boot.position) == (Step.SPOOL, 0)


def test_closing_leads_home_and_then_ends() -> None:
    made = progress()
    made.closing = ("done", "")
    assert decide(made, running(KERNELS["base"], NONCE)).step is Step.LEAVE
    assert decide(made, running(SAFE, "")).step is Step.END
    made.leaves = MOST_LEAVES
    assert decide(made, running(KERNELS["base"], NONCE)).step is Step.END


def test_trouble_of_ours_closes_the_session_with_its_reason() -> None:
    made = progress()
    made.outcomes, made.spooled = {0: {"outcome": "infrastructure", "reason": "no disk"}}, {0}
    decision = decide(made, running(SAFE, ""))
    assert (decision.step, decision.reason) == (Step.CLOSE, "no disk")


def test_last_outcome_closes_the_session() -> None:
    made = progress()
    made.outcomes = {position: {"outcome": "measured", "reason": ""} for position in (0, 1)}
    made.spooled = {0, 1}
    decision = decide(made, running(SAFE, ""))
    assert (decision.step, decision.reason) == (Step.CLOSE, "")


def test_machine_that_never_goes_down_is_given_up() -> None:
    made = progress(armed_in=NOW)
    made.arms = MOST_ARMS
    decision = decide(made, running(SAFE, ""))
    assert (decision.step, "did not reboot" in decision.reason) == (Step.GIVE_UP, True)


@pytest.mark.parametrize(
    ("armed_in", "booted_in", "build_id", "step"),
    [
        (None, None, KERNELS["base"], Step.ARM),
        (NOW, None, KERNELS["base"], Step.ENTER),
        (NOW, NOW, KERNELS["base"], Step.MEASURE),
        (BEFORE, None, KERNELS["base"], Step.ENTER),
        (BEFORE, BEFORE, KERNELS["base"], Step.JUDGE),
        (NOW, None, KERNELS["patched"], Step.WRONG),
        (NOW, None, SAFE, Step.WRONG),
    ],
)
def test_driver_current_measures_what_runs_if_it_is_wanted(
    armed_in: str | None, booted_in: str | None, build_id: str, step: Step
) -> None:
    made = progress(driver="current", armed_in=armed_in, booted_in=booted_in)
    assert decide(made, running(build_id, "")).step is step
