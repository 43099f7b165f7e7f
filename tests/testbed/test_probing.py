"""What the probe says in a machine whose CPU, nodes and kernel are known, because they were made so."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.guest import run_in_guest
from tests.testbed.kernels import BASE, kernel

pytestmark = pytest.mark.real
AGENT = "/usr/lib/tidemark-agent.pyz"


def test_a_guest_with_a_node_without_cpus_is_told_as_it_was_made(agent_program: Path, tmp_path: Path) -> None:
    base = kernel(BASE)
    output = run_in_guest(
        {AGENT: agent_program},
        f"dmesg -n 1; python3 {AGENT} probe --json",
        folder=tmp_path,
        kernel=base.image,
        cpu="EPYC-Milan",
        numa=True,
        words="clearcpuid=fsrm",
    )
    facts: dict[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert (facts["uarch"], facts["cpus"], facts["virtual"], facts["hypervisor"]) == ("zen3", 2, True, "qemu")
    assert (facts["kernel_release"], facts["kernel_build_id"]) == (base.release, base.build_id)
    assert [(node["cpus"], node["kind"], node["distances"]) for node in facts["nodes"]] == [
        ("0", "dram", [10, 21, 28]),
        ("1", "dram", [21, 10, 28]),
        ("", "cpuless", [28, 28, 10]),
    ]
    assert all(
        0.8 < node["memory_kb"] / size < 1
        for node, size in zip(facts["nodes"], (393_216, 393_216, 262_144), strict=True)
    )
    assert {"rep_good", "erms"} <= set(facts["flags"])
    assert (facts["alternatives"]["chosen_by"]["fsrm"], facts["alternatives"]["cleared"]) == (False, ["fsrm"])
    assert set(facts["alternatives"]["chosen_by"]) == {"rep_good", "erms", "fsrm", "fzrm", "fsrs", "fsrc"}
    assert (facts["board"]["vendor"], facts["preemption"], facts["page_bytes"]) == ("QEMU", "full", 4096)
