"""A session of the real service for one machine of the testbed: kernels, cases, an attempt, and what its disk holds."""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidemark_agent.benchmarks.bundle import find_benchmark, program_file

from server.builds.models import Artifact, Build
from server.builds.storage import put_artifact
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Attempt, AttemptState, Boot, BootState, Session, SessionState
from server.results.benchmarks import load_benchmark
from tests.builders import build_build, build_machine, build_series, build_session
from tests.testbed.disk import Files
from tests.testbed.kernels import Kernel
from tests.testbed.paths import ROOT

# Where the guest sees the host's loopback.
HOST = "10.0.2.2"
AGENT = "/usr/lib/tidemark-agent.pyz"
STATE = "/var/lib/tidemark-agent"
_BENCHMARK = "mm-basic"
# What the agent may change about a machine, as it is before and after: a restored machine tells the same twice.
_TELL_SETTINGS = """\
for f in /proc/sys/kernel/randomize_va_space /proc/sys/kernel/nmi_watchdog /proc/sys/kernel/watchdog \
/proc/sys/vm/swappiness /proc/sys/vm/nr_hugepages /proc/sys/kernel/numa_balancing \
/sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/defrag \
/sys/devices/system/cpu/smt/control /proc/irq/default_smp_affinity /sys/bus/workqueue/devices/writeback/cpumask; do
    [ -e $f ] && echo "$1 $f=$(cat $f)"
done
"""


@dataclass(frozen=True)
class LabSession:
    """Rows of one session and the files that its machine's disk needs."""

    session: Session
    attempt: Attempt
    files: Files

    def boots(self) -> list[Boot]:
        return list(self.session.boots.order_by("position"))

    def finished(self) -> int:
        """How many boots have their result."""
        return self.session.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).count()


def plan_session(
    *,
    address: str,
    agent: Path,
    scratch: Path,
    driver: str,
    base: Kernel,
    patched: Kernel,
    cases: Sequence[str],
    boots_per_side: int,
    options: Mapping[str, Any] | None = None,
    configuration: str = "",
) -> LabSession:
    """Plan a session on a machine with CPU "Haswell" and queue its attempt, as the dispatcher does."""
    benchmark = load_benchmark(ROOT / "agents" / "benchmarks" / _BENCHMARK)
    # Sessions are tested here, not figures.
    benchmark.cases.update(runs=2, warmup=1)
    machine = build_machine(
        name="testbed", uarch="haswell", boot_driver=driver, virtual=True, driver_options=dict(options or {}),
        cases=[f"{_BENCHMARK}/{case}" for case in cases],
    )  # fmt: skip
    series = build_series()
    builds = {"base_build": _build(series.base, base), "patched_build": _build(series.head, patched)}
    session = build_session(series, machine, state=SessionState.DISPATCHED, boots_per_side=boots_per_side, **builds)
    attempt = Attempt.objects.create(
        key=f"session-{session.pk}-1", number=1, session=session, adapter="local", slots=1, state=AttemptState.QUEUED,
        trace=session.trace,
    )  # fmt: skip
    token = issue_token(name="machine", scope=ApiToken.Scope.MACHINE, subject=machine.name)
    files: Files = {
        "/etc/tidemark/agent.toml": _configuration(address, configuration),
        "/etc/tidemark/token": token,
        "/etc/testbed/start": _start(attempt.key),
        AGENT: agent,
        **_compiled(scratch),
    }
    return LabSession(session, attempt, files)


def _build(revision: Any, kernel: Kernel) -> Build:
    build = build_build(revision, build_id=kernel.build_id)
    image = kernel.image.read_bytes()
    sha256 = hashlib.sha256(image).hexdigest()
    put_artifact(sha256, [image])
    build.artifacts.filter(kind=Artifact.Kind.IMAGE).update(sha256=sha256, size=len(image))
    return build


def _configuration(address: str, more: str) -> str:
    server = f"http://{HOST}:{urlsplit(address).port}"
    return f'server = "{server}"\ntoken_file = "/etc/tidemark/token"\nstate_dir = "{STATE}"\n{more}'


def _start(key: str) -> str:
    """What the machine does at each boot: what systemd would, and the dispatcher's one `install`.

    The kernel is silent while tests are told something: its messages would come between the letters.
    """
    return f"""\
#!/bin/sh
settings() {{
{_TELL_SETTINGS}}}
dmesg -n 1
if [ ! -e /installed ]; then
    settings before
    python3 {AGENT} install {key} || exit 1
    touch /installed
    sync
fi
dmesg -n 7
python3 {AGENT} service
status=$?
dmesg -n 1
echo "testbed: service ended with $status in $(uname -r)"
settings after
"""


def _compiled(scratch: Path) -> dict[str, Path]:
    """The benchmark's program, in the agent's cache: the guests have no compiler."""
    program = program_file(find_benchmark(_BENCHMARK), cache=scratch, stop=threading.Event())
    return {f"{STATE}/benchmarks/{program.name}": program}
