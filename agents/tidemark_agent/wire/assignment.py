"""What the server wants done, checked once where it comes in."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidemark_agent.errors import InfrastructureError

_SAFE_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHA1 = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REF = re.compile(r"refs/[A-Za-z0-9._/+@-]{1,200}")
_CROSS_PREFIX = re.compile(r"([a-z0-9][a-z0-9_.]{0,30}-){1,4}")
_FAMILIES: Final = frozenset({"gcc", "clang"})
# What services from before other architectures mean.
DEFAULT_ARCH: Final = "x86_64"


@dataclass(frozen=True)
class BuildLimits:
    """What one build may take of its builder. The defaults hold where the server names none.

    A distribution's kernel with debug information links in 8 GiB and leaves 30 GiB of objects; make -j64 has some 500
    processes. `cpu_seconds` is for each single process: none of a compiler's runs for an hour.
    """

    memory_mb: int = 16 * 1024
    processes: int = 4096
    disk_mb: int = 64 * 1024
    log_mb: int = 64
    cpu_seconds: int = 3600


@dataclass(frozen=True)
class BuildJob:
    """One kernel to build. `cross_compile` is the prefix of the compiler's programs, "" for the builder's own."""

    git_url: str
    ref: str
    commit: str
    tree: str
    arch: str
    compiler: str
    timeout_seconds: float
    jobs: int
    sandbox: bool
    config_name: str
    config_base: str
    fragment: str
    family: str = "gcc"
    cross_compile: str = ""
    perf: bool = False
    needs_cgroup: bool = True
    limits: BuildLimits = field(default_factory=BuildLimits)


@dataclass(frozen=True)
class KernelImage:
    """A kernel to boot: its image by hash, the build id that it must show, and the archive of its modules, or ""."""

    image: str
    build_id: str
    modules: str = ""


@dataclass(frozen=True)
class PlannedBoot:
    position: int
    arm: str


@dataclass(frozen=True)
class PlannedCase:
    """A benchmark case to run in each boot; `runs` counts the warm-up too."""

    benchmark: str
    version: str
    case: str
    runs: int
    warmup: int
    timeout_seconds: int
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class SessionJob:
    """Boots to make on this machine, in their order.

    `perf` is the hash of the base kernel's perf, which serves both arms; "" if there is none.
    """

    machine: str
    boot_driver: str
    virtual: bool
    clock: str
    sandbox: bool
    options: Mapping[str, Any]
    boot_timeout_seconds: float
    kernels: Mapping[str, KernelImage]
    boots: tuple[PlannedBoot, ...]
    cases: tuple[PlannedCase, ...]
    arch: str = DEFAULT_ARCH
    perf: str = ""


@dataclass(frozen=True)
class PowerJob:
    """A machine to switch off and on; `node` is Jenkins' name for it."""

    machine: str
    node: str
    reason: str
    timeout_seconds: float


@dataclass(frozen=True)
class Assignment:
    key: str
    trace: str
    lease_seconds: float
    job: BuildJob | SessionJob | PowerJob


def read_assignment(data: Mapping[str, Any]) -> Assignment:
    """The assignment in the server's answer; raises InfrastructureError when it makes no sense."""
    try:
        job = _JOBS[data["kind"]](data)
        return Assignment(
            key=str(data["key"]), trace=str(data["trace"]), lease_seconds=float(data["lease_seconds"]), job=job
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InfrastructureError(f"the assignment cannot be understood: {error!r}") from error


def _power_cycle(data: Mapping[str, Any]) -> PowerJob:
    machine = _matching(_SAFE_WORD, data["machine"])
    return PowerJob(
        machine=machine,
        node=_matching(_SAFE_WORD, data.get("node") or machine),
        reason=str(data.get("reason", "")),
        timeout_seconds=float(data.get("timeout_seconds") or 0),
    )


def _build(data: Mapping[str, Any]) -> BuildJob:
    config = data["config"]
    return BuildJob(
        git_url=_git_url(data["git_url"]),
        ref=_matching(_REF, data["ref"]),
        commit=_matching(_SHA1, data["commit"]),
        tree=_matching(_SAFE_WORD, data["tree"]),
        arch=_matching(_SAFE_WORD, data["arch"]),
        compiler=_matching(_SAFE_WORD, data["compiler"]),
        timeout_seconds=float(data["timeout_seconds"]),
        jobs=max(1, int(data["jobs"])),
        sandbox=_wants_sandbox(data["sandbox"]),
        config_name=_matching(_SAFE_WORD, config["name"]),
        config_base=_matching(_SAFE_WORD, config["base"]),
        fragment=str(config["fragment"]),
        family=_family(data.get("family", "gcc")),
        cross_compile=_matching(_CROSS_PREFIX, cross) if (cross := data.get("cross_compile", "")) else "",
        perf=bool(data.get("perf", False)),
        needs_cgroup=_needs_cgroup(data.get("cgroup", "required")),
        limits=_limits(data.get("limits") or {}),
    )


def _family(value: object) -> str:
    if value not in _FAMILIES:
        raise ValueError(f"family {value!r}")
    return str(value)


def _limits(data: Mapping[str, Any]) -> BuildLimits:
    """Those that are named; names that this agent does not know are left to newer ones."""
    known = {name: int(data[name]) for name in BuildLimits.__dataclass_fields__ if data.get(name) is not None}
    if wrong := [name for name, value in known.items() if value <= 0]:
        raise ValueError(f"limit {wrong[0]} is {known[wrong[0]]}")
    return BuildLimits(**known)


def _session(data: Mapping[str, Any]) -> SessionJob:
    kernels = {str(arm): _kernel(kernel) for arm, kernel in data["kernels"].items()}
    boots = tuple(PlannedBoot(position=int(boot["position"]), arm=str(boot["arm"])) for boot in data["boots"])
    for boot in boots:
        if boot.arm not in kernels:
            raise ValueError(f"no kernel for arm {boot.arm!r}")
    if data["clock"] not in {"instructions", "wall"}:
        raise ValueError(f"clock {data['clock']!r}")
    return SessionJob(
        machine=str(data["machine"]),
        boot_driver=str(data["boot_driver"]),
        virtual=bool(data["virtual"]),
        clock=str(data["clock"]),
        sandbox=_wants_sandbox(data.get("sandbox", "bwrap")),
        options=dict(data["options"]),
        boot_timeout_seconds=float(data["boot_timeout_seconds"]),
        kernels=kernels,
        boots=boots,
        cases=tuple(_case(case) for case in data["cases"]),
        arch=_matching(_SAFE_WORD, data.get("arch", DEFAULT_ARCH)),
        perf=_matching(_SHA256, data["perf"]) if data.get("perf") else "",
    )


def _kernel(data: Mapping[str, Any]) -> KernelImage:
    modules = data.get("modules")
    return KernelImage(
        image=_matching(_SHA256, data["image"]),
        build_id=str(data["build_id"]).lower(),
        modules=_matching(_SHA256, modules) if modules else "",
    )


def _case(data: Mapping[str, Any]) -> PlannedCase:
    return PlannedCase(
        benchmark=_matching(_SAFE_WORD, data["benchmark"]),
        version=_matching(_SAFE_WORD, data["version"]),
        case=_matching(_SAFE_WORD, data["case"]),
        runs=int(data["runs"]),
        warmup=int(data["warmup"]),
        timeout_seconds=int(data["timeout_seconds"]),
        metrics=tuple(_matching(_SAFE_WORD, metric) for metric in data["metrics"]),
    )


def _needs_cgroup(value: object) -> bool:
    if value not in {"required", "optional"}:
        raise ValueError(f"cgroup {value!r}")
    return value == "required"


def _wants_sandbox(value: object) -> bool:
    if value not in {"bwrap", "none"}:
        raise ValueError(f"sandbox {value!r}")
    return value == "bwrap"


def _git_url(value: object) -> str:
    url = str(value)
    if not url or url.startswith("-"):
        raise ValueError(f"git_url {url!r}")
    return url


def _matching(pattern: re.Pattern[str], value: object) -> str:
    """`value` if it matches: these words become file names and program arguments."""
    text = str(value)
    if not pattern.fullmatch(text) or ".." in text:
        raise ValueError(f"{text!r} is not allowed here")
    return text


_JOBS: Mapping[str, Callable[[Mapping[str, Any]], BuildJob | SessionJob | PowerJob]] = {
    "build": lambda data: _build(data["build"]),
    "session": lambda data: _session(data["session"]),
    "power-cycle": lambda data: _power_cycle(data["power_cycle"]),
}
