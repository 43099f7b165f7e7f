"""A Docker of the run's own: its programs unpacked, its daemon beside whatever else runs here, nothing of it left."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.source import SourcePackages
from scripts.e2e_jenkins.host import StepError

# Compose 2 is in Debian 13 first; its program runs on Debian 12 as it is.
_PROGRAMS = {
    "docker.io": "bookworm",
    "containerd": "bookworm",
    "runc": "bookworm",
    "tini": "bookworm",
    "docker-registry": "bookworm",
    "debootstrap": "bookworm",
    "docker-compose": "trixie",
}
_READY_SECONDS = 60.0
_TAIL = 1500


@dataclass(frozen=True)
class Engine:
    """`root` holds the unpacked programs, `folder` what the daemon writes; `registry` is where images are pushed."""

    root: Path
    folder: Path
    registry: str

    @property
    def environment(self) -> dict[str, str]:
        paths = [self.root / "usr" / name for name in ("bin", "sbin")]
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "COMPOSE_"))},
            "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
            "DOCKER_HOST": f"unix://{self.folder / 'docker.sock'}",
            "DOCKER_CONFIG": str(self.folder / "client"),
            # Debian's Docker has no buildx.
            "DOCKER_BUILDKIT": "0",
            "DEBOOTSTRAP_DIR": str(self.root / "usr/share/debootstrap"),
        }

    def run(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float = 1800,
    ) -> str:
        """Run one of the programs; a failure becomes a StepError with the end of what it said."""
        command = [str(word) for word in words]
        done = subprocess.run(
            command,
            env={**self.environment, **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).decode(errors="replace").strip()
            raise StepError(f"`{' '.join(command[:5])}` failed ({done.returncode}): {said[-_TAIL:]}")
        return done.stdout.decode(errors="replace")


def unpacked_programs(cache: Path) -> Path:
    """Docker's programs, from Debian's packages but not installed: no daemon of the system's starts or changes."""
    root = cache / "programs"
    stamp = root / ".whole"
    if stamp.exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for package, suite in _PROGRAMS.items():
        packages = SourcePackages(cache / f"apt-{suite}", package, suite)
        found = packages.download(packages.refresh()[-1])
        subprocess.run(["dpkg-deb", "--extract", str(found), str(root)], check=True, capture_output=True)
        found.unlink()
    stamp.touch()
    return root


@contextmanager
def engine(cache: Path, folder: Path, port: int) -> Iterator[Engine]:
    """A daemon and a registry that are gone at the end, with their networks, groups and files."""
    if os.geteuid() != 0:
        raise StepError("a Docker daemon of its own needs root")
    made = Engine(unpacked_programs(cache), folder, f"127.0.0.1:{port}")
    folder.mkdir(parents=True, exist_ok=True)
    before = _links()
    plugins = folder / "client" / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(made.root / "usr/libexec/docker/cli-plugins/docker-compose")
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.append(_start(made, "registry", _registry(made, cache / "registry", port)))
        running.append(_start(made, "dockerd", _daemon(made)))
        _await(made, running)
        yield made
    finally:
        for process in reversed(running):
            _end(process)
        _remove_rest(folder, before)


def _daemon(made: Engine) -> list[str]:
    return [
        "dockerd",
        # Its rules of the firewall would be the whole host's. Published ports work on the loopback without them.
        "--iptables=false",
        "--ip-forward=false",
        "--ip-masq=false",
        "--bridge=none",
        f"--cgroup-parent={made.folder.name}",
        f"--data-root={made.folder / 'data'}",
        f"--exec-root={made.folder / 'exec'}",
        f"--pidfile={made.folder / 'dockerd.pid'}",
        f"--host=unix://{made.folder / 'docker.sock'}",
    ]


def _registry(made: Engine, kept: Path, port: int) -> list[str]:
    config = made.folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {kept}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    return ["docker-registry", "serve", str(config)]


def _start(made: Engine, name: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    with (made.folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            executable=shutil.which(command[0], path=made.environment["PATH"]),
            env=made.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _await(made: Engine, running: Sequence["subprocess.Popen[bytes]"]) -> None:
    end = time.monotonic() + _READY_SECONDS
    while True:
        try:
            made.run("docker", "info", timeout=10)
        except (StepError, subprocess.TimeoutExpired) as error:
            dead = [process.args for process in running if process.poll() is not None]
            if dead or time.monotonic() > end:
                logs = "\n".join(path.read_text(errors="replace")[-_TAIL:] for path in made.folder.glob("*.log"))
                raise StepError(f"Docker does not run here: {error}\n{logs}") from error
            time.sleep(0.5)
        else:
            return


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _links() -> set[str]:
    return set(os.listdir("/sys/class/net"))  # noqa: PTH208 (names only)


def _remove_rest(folder: Path, before: set[str]) -> None:
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
    for link in _links() - before:
        if link.startswith(("br-", "veth", "docker")):
            subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)
    for group in Path("/sys/fs/cgroup").glob(f"*/{folder.name}"):
        for inner in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                inner.rmdir()
        with contextlib.suppress(OSError):
            group.rmdir()
    shutil.rmtree(folder, ignore_errors=True)


def left_behind(folder: Path) -> list[str]:
    """What a run left on this host, in words; nothing after a good one."""
    found = [str(path) for path in [folder, *Path("/sys/fs/cgroup").glob(f"*/{folder.name}")] if path.exists()]
    found += [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in entry.read_bytes() and entry.parent.name != str(os.getpid()):
                found.append(f"process {entry.parent.name}")
    return found
