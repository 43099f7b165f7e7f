"""Sessions across reboots, with kills and power cuts between any two lines of the journal."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_agent.lab.engine import MOST_SILENT

from tests.agent.lab.world import KERNELS, SAFE, FakeMachine, World, session_document

FATES = ("good", "good", "good", "wrong", "silent-early", "panic-early", "silent-late", "panic-late")


def assert_honest(world: World, boots: int) -> None:
    """Every planned boot has one outcome that is true, and the machine is home."""
    assert sorted(world.stored) == list(range(boots))
    assert world.kernel == (SAFE, "")
    assert world.tidied >= 1
    boot_ids = [body["boot_id"] for body in world.stored.values() if body["outcome"] == "measured"]
    assert len(set(boot_ids)) == len(boot_ids)
    for position, body in world.stored.items():
        arm = world.document["session"]["boots"][position]["arm"]
        match body["outcome"]:
            case "measured":
                assert body["build_id"] == KERNELS[arm]
                # A case in which the agent was killed three times is given up, with a note.
                ended = [*body["measurements"], *body["notes"]]
                assert sorted(values["case"] for values in ended) == ["c0", "c1"]
                assert all("ended 3 times" in note["reason"] for note in body["notes"])
            case "panic":
                assert "told so" in body["reason"] or world.silent_deaths > MOST_SILENT
            case "no-boot":
                assert world.silent_deaths > MOST_SILENT
            case outcome:
                assert (outcome, body["build_id"]) == ("wrong-kernel", "bad0")


def test_session_without_trouble_measures_each_boot_once_and_goes_home(tmp_path: Path) -> None:
    world = World(tmp_path, session_document(boots=8))
    progress = world.run_until_ended()
    assert_honest(world, 8)
    assert {body["outcome"] for body in world.stored.values()} == {"measured"}
    assert (progress.closing, world.ends) == (("done", ""), [("done", "")])
    assert (world.boots, world.case_runs) == (1 + 8 + 1, 16)


@given(
    fates=st.lists(st.sampled_from(FATES), max_size=12),
    cuts=st.dictionaries(st.integers(-60, 60), st.booleans(), max_size=12),
    keeps=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_session_ends_honestly_whatever_dies_whenever(fates: list[str], cuts: dict[int, bool], *, keeps: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        world = World(Path(folder), session_document(boots=4), fates=iter(fates), cuts=cuts, keeps=keeps)
        world.run_until_ended()
        assert_honest(world, 4)
        assert set(world.ends) <= {("done", "")}


def test_agent_killed_at_any_line_costs_nothing(memory: Path) -> None:
    for line in itertools.chain(range(-40, 0), range(1, 40)):
        world = World(memory / str(line), session_document(boots=2), cuts={line: False})
        world.run_until_ended()
        assert_honest(world, 2)
        assert {body["outcome"] for body in world.stored.values()} == {"measured"}
        # The one case that was under way may run again; nothing else does.
        assert world.case_runs in {4, 5}


def test_one_power_cut_at_any_line_costs_one_boot_at_most(memory: Path) -> None:
    for line, keeps in itertools.product([*range(-40, 0), *range(1, 40)], [False, True]):
        world = World(memory / f"{line}{keeps}", session_document(boots=2), cuts={line: True}, keeps=keeps)
        world.run_until_ended()
        assert_honest(world, 2)
        assert {body["outcome"] for body in world.stored.values()} == {"measured"}
        assert world.case_runs <= 6


@pytest.mark.parametrize(
    ("fate", "outcome", "tries"),
    [
        ("silent-early", "no-boot", 4),
        ("silent-late", "panic", 4),
        ("panic-early", "panic", 1),
        ("wrong", "wrong-kernel", 1),
    ],
)
def test_kernel_that_dies_gets_its_outcome_after_fair_tries(memory: Path, fate: str, outcome: str, tries: int) -> None:
    world = World(memory, session_document(boots=2), fates=iter([fate] * tries))
    world.run_until_ended()
    assert [world.stored[position]["outcome"] for position in (0, 1)] == [outcome, "measured"]
    if tries > 1:
        assert "4 boots of this kernel" in world.stored[0]["reason"]
        assert "nothing on record" in world.stored[0]["reason"]


def test_panic_on_record_is_the_reason_with_its_console(memory: Path) -> None:
    world = World(memory, session_document(boots=1), fates=iter(["panic-late"]))
    world.run_until_ended()
    body = world.stored[0]
    assert (body["outcome"], body["reason"]) == ("panic", "Kernel panic - not syncing: told so")
    assert body["console_tail"] == "its last lines"


def test_server_that_wants_no_more_ends_the_session_at_home(memory: Path) -> None:
    world = World(memory, session_document(boots=4), unwanted_from=2)
    progress = world.run_until_ended()
    assert sorted(world.stored) == [0, 1]
    assert world.kernel == (SAFE, "")
    assert progress.closing == ("done", "the server wants no more boots")


def test_superseded_session_goes_home_without_another_word(memory: Path) -> None:
    world = World(memory, session_document(boots=4), superseded_from=1)
    progress = world.run_until_ended()
    assert (progress.superseded, progress.ended, world.ends) == (True, True, [])
    assert world.kernel == (SAFE, "")


def test_kernel_that_cannot_load_the_next_one_goes_by_the_safe_kernel(memory: Path) -> None:
    world = World(memory, session_document(boots=3), cannot_arm={KERNELS["base"], KERNELS["patched"]})
    world.run_until_ended()
    assert_honest(world, 3)
    assert {body["outcome"] for body in world.stored.values()} == {"measured"}


def test_safe_kernel_that_cannot_load_any_ends_as_infrastructure(memory: Path) -> None:
    world = World(memory, session_document(boots=3), cannot_arm={SAFE})
    progress = world.run_until_ended()
    assert world.stored[0]["outcome"] == "infrastructure"
    assert sorted(world.stored) == [0]
    assert progress.closing == ("failed", "the kernel cannot be loaded")


def test_machine_that_cannot_kexec_at_all_never_begins(memory: Path) -> None:
    world = World(memory, session_document(boots=3), cannot_arm={"check"})
    progress = world.run_until_ended()
    assert (world.stored, progress.closing) == ({}, ("failed", "kexec is switched off"))


def test_agent_that_dies_in_one_case_each_time_gives_that_case_up(memory: Path) -> None:
    # Lines: claimed, armed, booted, case-begun; the agent is killed after each beginning of the first case.
    world = World(memory, session_document(boots=1), cuts={4: False, 5: False, 6: False})
    world.run_until_ended()
    body = world.stored[0]
    assert body["outcome"] == "measured"
    assert [note["outcome"] for note in body["notes"]] == ["infrastructure"]
    assert body["notes"][0]["reason"] == "the agent ended 3 times while it ran"


def test_disk_without_room_for_results_stops_the_measuring(memory: Path) -> None:
    world = World(memory, session_document(boots=3), trouble="no disk space left")
    progress = world.run_until_ended()
    assert (world.case_runs, world.boots) == (0, 1)
    assert progress.closing == ("failed", "no disk space left")


def test_kernel_that_dies_of_its_cases_under_the_driver_current_does_so_four_times(memory: Path) -> None:
    world = World(memory, session_document(boots=1, driver="current"), kernel=(KERNELS["base"], ""))
    world.fate = "silent-late"
    world.safe = KERNELS["base"]
    world.run_until_ended()
    assert (world.stored[0]["outcome"], world.silent_deaths) == ("panic", 4)


def test_agent_that_breaks_on_what_a_kernel_shows_gets_home_with_a_result(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise IndexError("a line of /proc with no words")

    monkeypatch.setattr(FakeMachine, "measure", broken)
    world = World(memory, session_document(boots=2))
    world.run_until_ended(most_processes=20)
    assert world.kernel == (SAFE, "")
    assert world.stored[0]["outcome"] == "infrastructure"
    assert "a line of /proc with no words" in world.stored[0]["reason"]
