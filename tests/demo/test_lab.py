from pathlib import Path

import pytest

from demo.postings import OUTCOMES
from demo.processes import ADDRESS
from demo.world import WALL_MACHINE, planned_machines, write_site
from server.builds.models import KernelConfig, Toolchain
from server.lab.models import Machine
from server.lab.site import load_site
from server.sources.models import MailingList, Tree, TrustedSender

pytestmark = pytest.mark.django_db
# Linux leaves transparent huge pages off below this much memory.
_HUGE_PAGES_FROM_MB = 640


def load(tmp_path: Path) -> None:
    load_site(
        write_site(tmp_path / 'odd "folder', repository=tmp_path / "linux", branches=["a", "b"], list_url="http://x/y")
    )


def test_site_file_is_taken_by_the_service_and_taken_again(tmp_path: Path) -> None:
    load(tmp_path)
    load(tmp_path)
    assert Tree.objects.get().url == (tmp_path / "linux").as_uri()
    assert Tree.objects.get().branch_patterns == ["a", "b"]
    assert MailingList.objects.get().moderated is False
    assert MailingList.objects.get().proof == "archive"
    assert TrustedSender.objects.get().address == ADDRESS
    assert Machine.objects.count() == 5


def test_arm64_host_compiles_across_for_the_same_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    load(tmp_path)
    assert Toolchain.objects.get().cross == {"x86_64": "x86_64-linux-gnu-"}
    assert Machine.objects.count() == 5


def test_all_machines_are_virtual_and_four_of_them_count_instructions(tmp_path: Path) -> None:
    load(tmp_path)
    machines = Machine.objects.all()
    assert all(machine.virtual for machine in machines)
    assert {machine.name for machine in machines if machine.clock == "wall"} == {WALL_MACHINE}
    assert all(machine.driver_options["memory_mb"] >= _HUGE_PAGES_FROM_MB for machine in machines)
    assert len({machine.driver_options["cpu"] for machine in machines}) == 4


def test_every_judged_microarchitecture_has_a_machine() -> None:
    uarchs = {machine.uarch for machine in planned_machines()}
    for outcome in OUTCOMES.values():
        assert set(outcome.verdicts) <= uarchs


def test_kernel_configuration_is_plain_lines_without_a_repetition(tmp_path: Path) -> None:
    load(tmp_path)
    lines = KernelConfig.objects.get().fragment.splitlines()
    assert all(line.startswith("CONFIG_") and "=" in line for line in lines)
    names = [line.partition("=")[0] for line in lines]
    assert len(names) == len(set(names))


def test_wall_clock_machine_boots_more_often_than_those_that_count() -> None:
    boots: dict[str, list[int]] = {"wall": [], "instructions": []}
    for machine in planned_machines():
        boots[machine.clock].append(machine.boots_per_side)
    assert min(boots["wall"]) > max(boots["instructions"])
