"""What builders may report, and what they are told to build."""

import hashlib
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from tidemark_agent.wire.assignment import BuildJob, SessionJob, read_assignment

from server.builds.models import Artifact, Build, BuildState, ConfigFragment, Toolchain
from server.core.models import ApiToken
from server.lab.attempts.arrivals import assignment
from server.lab.models import Attempt, Builder, PowerCycle
from tests.api.test_agent_api import AGENT, Agent, builder, dispatched_build
from tests.builders import build_build, build_config, build_machine, build_session

pytestmark = pytest.mark.django_db
IMAGE = b"image"
SHA = hashlib.sha256(IMAGE).hexdigest()


def report(**changes: Any) -> dict[str, Any]:
    image = {"kind": "image", "sha256": SHA, "size": len(IMAGE)}
    fields = {"agent": AGENT, "outcome": "built", "seconds": 1, "build_id": "abcd", "artifacts": [image]}
    return {**fields, **changes}


@pytest.fixture
def claimed() -> tuple[Agent, Build]:
    build, agent = dispatched_build(), builder()
    agent.claim("build-1")
    agent.put(IMAGE)
    return agent, build


def test_text_hash_and_perf_are_stored(claimed: tuple[Agent, Build]) -> None:
    agent, build = claimed
    agent.put(b"perf")
    perf = {"kind": "perf", "sha256": hashlib.sha256(b"perf").hexdigest(), "size": 4}
    files = [*report()["artifacts"], perf]
    agent.post("attempts/build-1/build", **report(text_hash="e" * 64, kernel_hash="d" * 64, artifacts=files))
    build.refresh_from_db()
    assert (build.state, build.text_hash, build.kernel_hash) == (BuildState.BUILT, "e" * 64, "d" * 64)
    assert set(build.artifacts.values_list("kind", flat=True)) == {"image", "perf"}


def test_compiler_crash_is_stored_with_its_first_error_however_long(claimed: tuple[Agent, Build]) -> None:
    agent, build = claimed
    error = "mm/memory.c:7:1: internal compiler error: Segmentation fault\0\n" + "x" * 9000
    told = report(outcome="failed", reason="r" * 9000, first_error=error, build_id="", artifacts=[])
    agent.post("attempts/build-1/build", **told)
    build.refresh_from_db()
    assert build.state == BuildState.FAILED
    assert build.first_error.startswith("mm/memory.c:7:1: internal compiler error: Segmentation fault\n")
    assert (len(build.first_error), len(build.reason)) == (4000, 4000)


@pytest.mark.parametrize(
    "changes",
    [
        {"artifacts": [{"kind": "rootkit", "sha256": SHA, "size": 5}]},
        {"artifacts": [{"kind": "image", "sha256": SHA[:-1], "size": 5}]},
        {"artifacts": [{"kind": "image", "sha256": SHA, "size": 4}]},
        {"artifacts": [{"kind": "image", "sha256": SHA, "size": 2**60}]},
        {"artifacts": [{"kind": "image", "sha256": SHA, "size": 5}] * 2},
        {"artifacts": [{"kind": "image", "sha256": SHA, "size": 5}] * 1000},
        {"artifacts": [{"kind": "image", "sha256": "0" * 64, "size": 5}]},
        {"artifacts": "image"},
        {"text_hash": "not hex"},
        {"build_id": ""},
    ],
)
def test_report_that_cannot_be_is_refused_and_changes_nothing(
    claimed: tuple[Agent, Build], changes: dict[str, Any]
) -> None:
    agent, build = claimed
    agent.post("attempts/build-1/build", 400, **report(**changes))
    build.refresh_from_db()
    assert (build.state, build.artifacts.count()) == (BuildState.RUNNING, 0)


def test_other_builder_reports_nothing_and_nobody_before_the_claim() -> None:
    build = dispatched_build()
    other = Agent(ApiToken.Scope.BUILDER, "other-builder")
    other.put(IMAGE)
    other.post("attempts/build-1/build", 404, **report())
    builder().post("attempts/build-1/build", 409, **report())
    build.refresh_from_db()
    assert build.state == BuildState.DISPATCHED


def test_builder_is_told_all_that_decides_the_kernel(settings: Settings) -> None:
    settings.BUILD_MEMORY_MB = 4096
    ConfigFragment.objects.create(name="lab", lines="CONFIG_A=y\n")
    config = build_config("arm", arch="arm64", base="defconfig", fragments=["lab"], fragment="CONFIG_B=m\n", perf=True)
    cross = {"arm64": "aarch64-linux-gnu-"}
    toolchain = Toolchain.objects.create(name="cross", compiler="gcc", cross=cross)
    build = build_build(state=BuildState.RUNNING, config=config, toolchain=toolchain)
    Build.objects.filter(pk=build.pk).update(arch="arm64")
    build.refresh_from_db()
    host = Builder.objects.create(name="big", arches=["arm64"], jobs=48)
    job = read_assignment(assignment(Attempt(key="build-1-1", build=build, builder=host, trace="t"), [])).job
    assert isinstance(job, BuildJob)
    assert (job.arch, job.family, job.cross_compile, job.perf, job.jobs) == (
        "arm64", "gcc", "aarch64-linux-gnu-", True, 48,
    )  # fmt: skip
    assert (job.fragment, job.config_base) == ("CONFIG_A=y\nCONFIG_B=m\n", "defconfig")
    assert (job.limits.memory_mb, job.limits.log_mb) == (4096, 64)
    host.jobs = 0
    order = assignment(Attempt(key="build-1-1", build=build, builder=host, trace="t"), [])
    assert order["build"]["jobs"] == settings.LOCAL_SLOTS


def test_machine_is_told_the_base_kernel_s_perf_for_both_arms_unless_it_was_removed() -> None:
    session = build_session()
    perf = Artifact.objects.create(build=session.base_build, kind="perf", sha256="a" * 64, size=1)
    Artifact.objects.create(build=session.patched_build, kind="perf", sha256="b" * 64, size=1)

    def told() -> SessionJob:
        session.refresh_from_db()
        job = read_assignment(assignment(Attempt(key="session-1-1", session=session, trace="t"), [])).job
        assert isinstance(job, SessionJob)
        return job

    assert (told().perf, told().arch) == ("a" * 64, "x86_64")
    Artifact.objects.filter(pk=perf.pk).update(removed_at=session.created_at)
    assert told().perf == ""


def test_control_host_is_told_which_machine_to_switch() -> None:
    cycle = PowerCycle.objects.create(machine=build_machine(node="rack-7"), state="wanted", reason="silent")
    order = assignment(Attempt(key="power-cycle-1-1", power_cycle=cycle, trace="t"), [])
    assert order["kind"] == "power-cycle"
    assert order["power_cycle"] == {
        "machine": "vm-haswell", "node": "rack-7", "reason": "silent", "timeout_seconds": 300,
    }  # fmt: skip
