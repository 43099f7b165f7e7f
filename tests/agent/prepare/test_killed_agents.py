"""Whenever an agent dies, the next one puts the machine back exactly as it was."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidemark_agent.log import Log
from tidemark_agent.prepare import CannotMeasureError, Preparation

from tests.agent.prepare.dying import Death, KilledError, bury, cease, live_and_die, mortal_journal
from tests.agent.prepare.tree import BOOT_ID, CPU, KernelTree, TreePrograms, differences, prepared, server
from tests.house.sources import ROOT

# A moment at which all of the machine's settings and most of the case's are set.
LATE = 130
ANOTHER_BOOT = "00000000-1111-4222-8333-444444444444"


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Death of a process loses nothing that it has written: syncing would only cost time here."""
    monkeypatch.setattr("tidemark_agent.prepare.journal.os.fsync", lambda _descriptor: None)


@pytest.mark.real
def test_settings_journal_is_replayed_after_a_death_at_any_moment(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    before = tree.snapshot()
    moment = 0
    while live_and_die(tree, tmp_path, moment):
        assert prepared(tree, tmp_path).replay() == (), moment
        assert differences(before, tree.snapshot()) == {}, moment
        assert not (tmp_path / "settings.jsonl").exists(), moment
        moment += 1
    assert moment > 200
    assert differences(before, tree.snapshot()) == {}


def test_settings_journal_is_replayed_after_a_kill(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    before = tree.snapshot()
    for moment in range(0, 220, 17):
        assert live_and_die(tree, tmp_path, moment)
        assert prepared(tree, tmp_path).replay() == (), moment
        assert differences(before, tree.snapshot()) == {}, moment


def test_replay_that_dies_itself_is_finished_by_the_next(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    before = tree.snapshot()
    for moment in range(0, 90, 7):
        assert live_and_die(tree, tmp_path, LATE)
        for later in (moment, moment // 2):
            _replay_and_die(tree, tmp_path, later)
        assert prepared(tree, tmp_path).replay() == (), moment
        assert differences(before, tree.snapshot()) == {}, moment


def test_settings_of_another_boot_are_dropped_without_touching(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    fresh = tree.snapshot()
    assert live_and_die(tree, tmp_path, LATE)
    for name, text in fresh.items():
        tree.put(name, text.strip())
    tree.put("proc/sys/kernel/random/boot_id", ANOTHER_BOOT)
    # Somebody chose for the new boot what the journal would take for its own.
    tree.put(f"{CPU}/cpufreq/boost", "0")
    tree.written.clear()
    with (tmp_path / "log").open("w") as stream:
        assert prepared(tree, tmp_path, log=Log(stream)).replay() == ()
    assert tree.written == []
    assert not (tmp_path / "settings.jsonl").exists()
    assert '"settings-dropped"' in (tmp_path / "log").read_text()


def test_value_that_somebody_changed_meanwhile_is_left_alone_with_a_warning(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    before = tree.snapshot()
    preparation = prepared(tree, tmp_path)
    preparation.apply()
    bury(preparation)
    tree.put(f"{CPU}/cpufreq/policy4/scaling_governor", "ondemand")
    problems = prepared(tree, tmp_path).replay()
    assert len(problems) == 1
    assert "policy4/scaling_governor was set to 'performance' and is 'ondemand' now" in problems[0]
    left = differences(before, tree.snapshot())
    assert left == {f"{CPU}/cpufreq/policy4/scaling_governor": ("schedutil\n", "ondemand\n")}
    assert prepared(tree, tmp_path).replay() == ()


def test_what_cannot_be_put_back_is_tried_again_and_not_forgotten(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    before = tree.snapshot()
    programs = TreePrograms(tree)
    preparation = prepared(tree, tmp_path, programs=programs)
    preparation.apply()
    programs.refuses.add("cron.service")
    assert preparation.restore() == ("services: systemctl failed with 1: cron.service does not start",)
    # The next session begins although that is still open, and its end brings it back.
    second = prepared(tree, tmp_path, programs=programs)
    second.apply()
    programs.refuses.clear()
    assert second.restore() == ("services: systemctl failed with 1: cron.service does not start",)
    assert differences(before, tree.snapshot()) == {}


@pytest.mark.real
def test_settings_are_restored_after_kill_9(tmp_path: Path) -> None:
    tree = server(tmp_path / "root")
    before = tree.snapshot()
    # Steps of a prime: all sorts of moments are met, while settings are made as well as while they are put back.
    for moment in range(0, 220, 11):
        command = [sys.executable, "-m", "tests.agent.prepare.dying", str(tree.root), str(tmp_path), str(moment)]
        path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'agents'}"}
        done = subprocess.run(command, cwd=ROOT, env=path, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert prepared(tree, tmp_path).replay() == (), moment
        assert differences(before, tree.snapshot()) == {}, moment


WISHES = st.fixed_dictionaries(
    {},
    optional={
        "aslr": st.sampled_from(["on", "off"]),
        "thp": st.sampled_from(["always", "madvise", "never"]),
        "thp_sizes": st.just({"64": "always"}),
        "numa_balancing": st.booleans(),
        "huge_pages": st.sampled_from([{"2048": 7}, {"2048": {"0": 3, "1": 4}}, {"2048": 0}]),
    },
)
# A session that lives up to a moment (or to its end), with the cases it runs, a replay that dies, and a reboot.
LIVES = st.lists(
    st.tuples(st.integers(0, 220), st.lists(WISHES, max_size=3), st.integers(0, 60), st.booleans()), max_size=5
)


@pytest.mark.real
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=LIVES, pools=st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_any_sequence_of_lives_and_deaths_ends_as_it_began(
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[tuple[int, list[dict[str, object]], int, bool]],
    pools: tuple[int, int],
) -> None:
    state = tmp_path_factory.mktemp("lives")
    tree = server(state / "root")
    for node, count in enumerate(pools):
        tree.write(f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages", str(count))
    before = tree.snapshot()
    for number, (moment, cases, replay_moment, reboots) in enumerate(lives):
        _live(tree, state, moment, cases)
        if reboots:
            for name, text in before.items():
                tree.put(name, text.strip())
            for cpuset in set(tree.snapshot()) - set(before):
                tree.remove(cpuset)
            tree.put("proc/sys/kernel/random/boot_id", f"{number:08x}{BOOT_ID[8:]}")
            before = tree.snapshot()
        _replay_and_die(tree, state, replay_moment)
    assert prepared(tree, state).replay() == ()
    assert differences(before, tree.snapshot()) == {}


def _live(tree: KernelTree, state: Path, moment: int, cases: list[dict[str, object]]) -> None:
    death = Death(moment, cease)
    tree.watch = death.moment
    preparation: Preparation = prepared(tree, state)
    try:
        with mortal_journal(death):
            preparation.apply()
            for wants in cases:
                with preparation.case(wants):
                    pass
                assert preparation.verify() == ()
            assert preparation.restore() == ()
    except (KilledError, CannotMeasureError):
        assert death.is_dead
    finally:
        tree.watch = lambda _event: None
        bury(preparation)


def _replay_and_die(tree: KernelTree, state: Path, moment: int) -> None:
    death = Death(moment, cease)
    tree.watch = death.moment
    preparation = prepared(tree, state)
    try:
        with mortal_journal(death):
            preparation.replay()
    except KilledError:
        pass
    finally:
        tree.watch = lambda _event: None
        bury(preparation)
