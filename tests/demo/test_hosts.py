"""The hosts of the demo that ask for work: nothing of them runs before they are enrolled."""

import subprocess
import tomllib
from pathlib import Path

from demo.hosts import BUILDER, Hosts
from demo.world import open_world, planned_machines, write_site


def test_agent_begins_as_soon_as_its_host_is_enrolled(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ("vm-1",), tmp_path / "ccache")
    hosts.agent.write_text("import sys; print(*sys.argv[1:])")
    program = hosts.programs()[0]
    process = subprocess.Popen(program.argv, stdout=subprocess.PIPE, text=True)
    file = tmp_path / "vm-1" / "agent.toml"
    assert process.poll() is None
    file.parent.mkdir()
    file.write_text("server = 'x'")
    assert process.communicate(timeout=60)[0] == f"service --config {file}\n"


def test_site_of_hosts_that_ask_has_a_host_for_each_machine_and_a_builder(tmp_path: Path) -> None:
    world = open_world(tmp_path, running=False, pull=True)
    assert world.settings()["TIDEMARK_DISPATCHER"] == "pull"
    there = {program.name for program in world.programs()}
    assert {f"host-{name}" for name in (*(machine.name for machine in planned_machines()), BUILDER)} <= there
    file = write_site(tmp_path, repository=tmp_path, branches=["b"], list_url="http://127.0.0.1/list", pull=True)
    assert [entry["name"] for entry in tomllib.loads(file.read_text())["builder"]] == [BUILDER]
