"""What docker-compose.yml, the Dockerfile and the profile of system calls promise about walls between containers."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.celery import QUEUES

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
# A version to its last number, or a digest.
PINNED = re.compile(r".*:\d+\.\d+(\.\d+)?-[a-z0-9-]+|.*@sha256:[0-9a-f]{64}")


WORKERS = {name for name in SERVICES if name.startswith("worker-")}
# Nothing of these runs without the word of their profile.
APART = {name for name, service in SERVICES.items() if "profiles" in service}


def default(text: str) -> str:
    """What a value is where the operator's environment says nothing."""
    while "${" in text:
        text = re.sub(r"\$\{\w+:-([^${}]*)\}", r"\1", text)
    return text


def test_each_queue_has_a_worker_of_its_own() -> None:
    assert {f"worker-{queue}" for queue in QUEUES} == WORKERS
    for name in WORKERS:
        words = SERVICES[name]["command"]
        assert words[words.index("--queues") + 1] == name.removeprefix("worker-")


@pytest.mark.parametrize("name", SERVICES)
def test_container_that_stays_is_asked_whether_it_is_well(name: str) -> None:
    service = SERVICES[name]
    assert ("healthcheck" in service) == (service["restart"] != "no")


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_runs_as_root(name: str) -> None:
    """By its number, or by the last USER of the stage that it is built from."""
    service = SERVICES[name]
    if "user" in service:
        assert not service["user"].startswith("0")
    elif name != "jenkins":
        stage = service["image"].removeprefix("tidemark-")
        lines = DOCKERFILE[DOCKERFILE.index(f" AS {stage}\n") :].partition("\nFROM ")[0]
        assert re.findall(r"^USER (.*)", lines, re.MULTILINE)[-1] == "tidemark"


def test_profiles_add_a_proxy_and_a_lab_and_nothing_else() -> None:
    assert {"proxy", "jenkins", "jenkins-join", "jenkins-builder", "jenkins-machine"} == APART


def test_secrets_are_files_and_each_is_known() -> None:
    known = COMPOSE["secrets"]
    assert all(set(secret) == {"file"} for secret in known.values())
    used = {
        one if isinstance(one, str) else one["source"]
        for service in SERVICES.values()
        for one in service.get("secrets", [])
    }
    assert used == set(known)


@pytest.mark.parametrize("name", SERVICES)
def test_container_has_no_rights_and_no_more_than_its_share(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "no-new-privileges:true" in service["security_opt"]
    assert not {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc"} & set(service)
    assert service["pids_limit"] > 0
    assert service["mem_limit"] == service["memswap_limit"]
    assert service["tmpfs"]
    assert all("nr_inodes=" in place and "size=" in place for place in service["tmpfs"])
    assert service["networks"]


@pytest.mark.parametrize("name", SERVICES)
def test_image_from_elsewhere_is_pinned(name: str) -> None:
    service = SERVICES[name]
    ours = service["image"].startswith("tidemark-")
    assert ours or PINNED.fullmatch(default(service["image"]))
    # What is not published anywhere is not asked for elsewhere.
    assert not ours or "build" in service or service["pull_policy"] == "never"


def test_each_image_of_ours_is_built_by_one_service() -> None:
    """Without buildx each would make it anew, side by side."""
    built = [service["image"] for service in SERVICES.values() if "build" in service]
    assert len(built) == len(set(built))
    assert set(built) == {service["image"] for service in SERVICES.values() if service["image"].startswith("tidemark-")}


def test_base_images_are_pinned_and_the_builder_has_nothing_of_the_service() -> None:
    named = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert {base.removeprefix("$") for base in bases} == {*named, "builder"}
    assert all(PINNED.fullmatch(image) for image in named.values())
    written = {
        default(value) for service in SERVICES.values() for value in service.get("build", {}).get("args", {}).values()
    }
    assert written == set(named.values())
    builder = DOCKERFILE[DOCKERFILE.index(" AS builder") :].partition("\nFROM ")[0]
    assert re.findall(r"^COPY .*", builder, re.MULTILINE) == [
        "COPY --from=build /srv/tidemark/tidemark-agent.pyz /usr/local/bin/tidemark-agent"
    ]


def test_service_has_the_programs_that_back_its_server_up() -> None:
    """Of the very image that the server runs from: an older pg_dump cannot read it."""
    stages = dict(re.findall(r"^FROM (\S+) AS (\S+)\n", DOCKERFILE, re.MULTILINE))
    assert stages["$POSTGRES_IMAGE"] == "postgres"
    given = SERVICES["web"]["build"]["args"]["POSTGRES_IMAGE"]
    assert given == SERVICES["postgres"]["image"]
    copied = DOCKERFILE[DOCKERFILE.index(" AS postgres\n") :].partition("\nFROM ")[0]
    assert all(f"/bin/{program} " in copied for program in ("pg_dump", "pg_restore", "psql"))
    service = DOCKERFILE[DOCKERFILE.index(" AS service\n") :].partition("\nFROM ")[0]
    assert "COPY --from=postgres /client /usr/local\n" in service


def test_a_collector_may_show_a_token_that_web_reads_from_a_secret() -> None:
    web = SERVICES["web"]
    assert web["environment"]["TIDEMARK_METRICS_TOKEN_FILE"] == "/run/secrets/metrics-token"
    assert "metrics-token" in web["secrets"]


def test_strangers_code_is_built_without_secrets_and_without_a_way_out() -> None:
    builder = SERVICES["builder"]
    assert "secrets" not in builder
    assert set(builder["environment"]) == {"TIDEMARK_CCACHE_DIR"}
    assert builder["networks"] == ["builds"]
    assert COMPOSE["networks"]["builds"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if "builds" in service["networks"]} == {
        "builder", "web", "proxy", "jenkins-builder", "jenkins-machine",
    }  # fmt: skip
    assert not any("secrets" in SERVICES[name] for name in ("jenkins-builder", "jenkins-machine"))
    shown = {volume.split(":")[0]: volume.split(":")[2:] for volume in builder["volumes"]}
    assert shown == {"agents": [], "tokens": ["ro"], "mirror": ["ro"], "ccache": []}


def test_no_more_than_it_takes_reaches_beyond_this_host() -> None:
    open_ = {name for name, about in COMPOSE["networks"].items() if not (about or {}).get("internal")}
    assert {name for name, service in SERVICES.items() if open_ & set(service["networks"])} == {
        "web", "worker-sources", "worker-lab", "worker-reports", "proxy", "jenkins",
    }  # fmt: skip
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"web", "proxy", "jenkins"}
    assert all(port.startswith("127.0.0.1:") for name in ("web", "jenkins") for port in published[name])


def test_sandboxes_and_the_limit_on_memory_stand_unless_the_operator_says_otherwise() -> None:
    settings = SERVICES["worker-lab"]["environment"]
    walls = {name: default(settings[name]) for name in settings if name.endswith(("_SANDBOX", "_CGROUP"))}
    assert walls == {
        "TIDEMARK_APPLY_SANDBOX": "bwrap", "TIDEMARK_BUILD_SANDBOX": "bwrap", "TIDEMARK_BUILD_CGROUP": "required",
    }  # fmt: skip
    assert settings["TIDEMARK_LOCAL_AGENTS"] == "apart"
    assert list(map(default, SERVICES["builder"]["command"][-2:])) == ["--sandbox=bwrap", "--cgroup=required"]


def test_redis_asks_for_a_password_that_no_command_line_or_environment_shows() -> None:
    redis, settings = SERVICES["redis"], SERVICES["worker-lab"]["environment"]
    assert "requirepass" in redis["command"][-1]
    assert "redis-password" in redis["secrets"]
    assert "environment" not in redis
    assert settings["TIDEMARK_REDIS_URL_FILE"] == "/run/secrets/redis-url"
    assert not any(
        name.endswith(("_URL", "_KEY", "_PASSWORD")) and "://" not in str(settings[name]) for name in settings
    )
    assert "TIDEMARK_REDIS_URL" not in settings


def test_containers_that_make_sandboxes_are_refused_what_these_do_not_need() -> None:
    loose = {name for name, service in SERVICES.items() if len(service["security_opt"]) > 1}
    assert loose == {"worker-sources", "builder", "jenkins-builder", "jenkins-machine"}
    profile = json.loads((ROOT / "containers/seccomp.json").read_text(encoding="utf-8"))
    refused = {name for rule in profile["syscalls"] for name in rule["names"] if rule["action"] == "SCMP_ACT_ERRNO"}
    assert {"bpf", "keyctl", "kexec_load", "init_module", "perf_event_open", "io_uring_setup", "ptrace"} <= refused
    assert not {"clone", "clone3", "unshare", "mount", "umount2", "pivot_root", "seccomp", "prctl"} & refused


@pytest.mark.parametrize("name", ["web", *sorted(WORKERS)])
def test_processes_of_a_container_fail_at_their_own_bounds_before_it_is_full(name: str) -> None:
    service, settings = SERVICES[name], SERVICES[name]["environment"]
    words = dict(itertools.pairwise(service.get("command", [])))
    processes = int(words.get("--concurrency") or settings["TIDEMARK_WEB_PROCESSES"])
    whole = int(service["mem_limit"].removesuffix("g")) * 1024
    kind = name.partition("-")[0].upper()
    recycled, most = (int(settings[f"TIDEMARK_{kind}_{what}_MB"]) for what in ("RECYCLE", "MEMORY"))
    assert recycled < most
    # Who starts them has a tenth and more.
    assert processes * most <= 0.9 * whole


def test_compose_file_is_one_by_the_published_schema() -> None:
    """Compose itself reads it in `make e2e-compose`; a host without Docker has the schema."""
    words = ["--builtin-schema", "vendor.compose-spec", str(ROOT / "docker-compose.yml")]
    done = subprocess.run(
        [Path(sys.executable).with_name("check-jsonschema"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_settings_that_are_passed_on_are_settings() -> None:
    known = (ROOT / "docs/operations/settings.md").read_text(encoding="utf-8")
    passed = {
        name for service in SERVICES.values() for name in service.get("environment", {}) if name.startswith("TIDEMARK_")
    }
    assert passed
    assert {
        name for name in passed if f"`{name.removesuffix('_FILE')}`" not in known and f"`{name}`" not in known
    } == set()
