import pytest

from server.builds.models import Build, BuildState
from server.lab.models import BootState, Machine, Session, SessionState
from server.lab.work import boot_order
from server.sources.models import SeriesState, Tree
from tests.builders import build_list, build_machine, build_series, build_tree
from tests.lab.planning import plan_series, series_to_plan

pytestmark = pytest.mark.django_db


def make_all(state: str) -> None:
    Build.objects.update(state=state, build_id="ab" if state == BuildState.BUILT else "", reason="mm/x.c:1: error")


def test_boots_are_interleaved_and_balanced() -> None:
    assert boot_order(2) == ["base", "patched", "patched", "base"]
    for per_side in range(2, 9):
        assert boot_order(per_side).count("base") == per_side


def test_series_wants_two_kernels_once_for_machines_with_one_config() -> None:
    build_machine("vm-a")
    build_machine("vm-b", "zen3")
    series = build_series()
    plan_series(series_id=series.pk)
    plan_series(series_id=series.pk)
    assert Build.objects.count() == 2
    assert Session.objects.count() == 0
    assert series_to_plan() == [series.pk]


def test_sessions_wait_for_all_kernels_and_are_planned_once() -> None:
    build_machine("vm-a")
    build_machine("vm-b", "zen3", boots_per_side=3)
    series = build_series()
    plan_series(series_id=series.pk)
    make_all(BuildState.BUILT)
    plan_series(series_id=series.pk)
    plan_series(series_id=series.pk)
    assert {s.machine.name: s.boots.count() for s in Session.objects.all()} == {"vm-a": 8, "vm-b": 6}
    assert series_to_plan() == []


def test_kernel_that_does_not_build_fails_the_session_with_its_reason() -> None:
    build_machine()
    series = build_series()
    plan_series(series_id=series.pk)
    make_all(BuildState.BUILT)
    Build.objects.filter(revision=series.head).update(state=BuildState.FAILED, reason="mm/memory.c:7: error: no")
    plan_series(series_id=series.pk)
    session = Session.objects.get()
    assert session.state == SessionState.FAILED
    assert session.reason == "the series breaks the build: mm/memory.c:7: error: no (no patch touches mm/memory.c)"
    assert set(session.boots.values_list("state", flat=True)) == {BootState.FAILED}


def test_edited_config_is_another_kernel() -> None:
    machine = build_machine()
    series = build_series()
    plan_series(series_id=series.pk)
    machine.config.fragment += "CONFIG_SMP=y\n"
    machine.config.save()
    plan_series(series_id=series.pk)
    assert Build.objects.count() == 4


def test_kernels_of_two_compilers_are_never_compared() -> None:
    build_machine()
    series = build_series()
    plan_series(series_id=series.pk)
    make_all(BuildState.BUILT)
    Build.objects.filter(revision=series.base).update(compiler_version="gcc 12.1")
    Build.objects.filter(revision=series.head).update(compiler_version="gcc 12.2")
    assert plan_series(series_id=series.pk) == []
    plan_series(series_id=series.pk)
    assert list(Build.objects.filter(revision=series.base).order_by("pk").values_list("state", flat=True)) == [
        BuildState.BUILT,
        BuildState.WANTED,
    ]
    Build.objects.filter(state=BuildState.WANTED).update(
        state=BuildState.BUILT, build_id="cd", compiler_version="gcc 12.2"
    )
    plan_series(series_id=series.pk)
    assert Session.objects.get().base_build.compiler_version == "gcc 12.2"


def test_unapplied_series_is_left_alone() -> None:
    build_machine()
    series = build_series(state=SeriesState.HELD)
    plan_series(series_id=series.pk)
    assert Build.objects.count() == 0


def test_tree_s_microarchitectures_choose_machines_unless_the_lab_has_none_of_them() -> None:
    build_machine("vm-a")
    build_machine("vm-b", "zen3")
    build_machine("vm-c", "zen5", health=Machine.Health.QUARANTINED)
    for wanted, machines in ((["zen3"], {"vm-b"}), (["zen3", "zen5"], {"vm-b"}), (["alpha"], {"vm-a", "vm-b"})):
        series = build_series()
        assert series.base is not None
        Tree.objects.filter(pk=series.base.tree_id).update(uarchs=wanted)
        plan_series(series_id=series.pk)
        make_all(BuildState.BUILT)
        plan_series(series_id=series.pk)
        assert set(series.sessions.values_list("machine__name", flat=True)) == machines


@pytest.mark.parametrize(
    ("asked", "of_tree", "wanted"),
    [
        (["mm-basic", "clear-page"], ["move-pages", "mm-basic"], ["clear-page", "mm-basic", "move-pages"]),
        (["mm-basic"], [], ["mm-basic"]),
        ([], ["move-pages"], []),
    ],
)
def test_session_keeps_what_it_shall_measure(asked: list[str], of_tree: list[str], wanted: list[str]) -> None:
    build_machine()
    series = build_series(benchmarks=asked)
    Tree.objects.update(benchmarks=of_tree)
    plan_series(series_id=series.pk)
    make_all(BuildState.BUILT)
    plan_series(series_id=series.pk)
    assert Session.objects.get().benchmarks == wanted


def test_trees_of_high_priority_are_planned_first() -> None:
    late = build_series(build_list("urgent", tree=build_tree("urgent", priority=5)))
    assert series_to_plan() == [late.pk]
    build_list("linux-mm")
    usual = build_series()
    assert series_to_plan() == [late.pk, usual.pk]
    Tree.objects.filter(name="stable").update(priority=9)
    assert series_to_plan() == [usual.pk, late.pk]
