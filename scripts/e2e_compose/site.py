"""The site inside the containers: its secrets, the world that it watches, and what it says about the series."""

import json
import os
import secrets
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.postings import Archive, Posting, discussion, ensure_posting, make_mails
from demo.processes import only_writer
from demo.source import ensure_tree
from demo.world import ROOT, write_site
from scripts.e2e_compose.engine import Engine
from scripts.e2e_jenkins.host import StepError

_PROJECT = "tidemark-e2e"
_SERVICE_USER = 10001
_SERVERS_USER = 999
_PROXY_USER = 101
_PAUSE_SECONDS = 2.0
# One machine is enough for a verdict; the others of the demo's lab would only boot longer.
_MACHINE = "vm-haswell"
# What the containers see of the outside: a tree and a list archive.
_OVERRIDE = """\
x-series-alone: &alone
  # As in the demo: nights do not come, and its machine is there for one series.
  environment: {TIDEMARK_NOISE_HOURS: "0", TIDEMARK_HEAD_BOOTS: "0", TIDEMARK_SERIES_HOURS: "0.01"}
services:
  web: {build: {network: host}}
  builder: {build: {network: host}}
  worker-builds: *alone
  worker-lab: *alone
  worker-detection: *alone
  worker-reports: *alone
  worker-sources: &reads
    <<: *alone
    volumes: ["WORLD:/srv/world:ro"]
  worker-upkeep: *reads
"""


@dataclass(frozen=True)
class Site:
    """The Compose project of one run."""

    engine: Engine
    folder: Path
    port: int
    settings: Mapping[str, str]

    def compose(self, *words: str, timeout: float = 1800, profiles: tuple[str, ...] = ()) -> str:
        files = ["--file", str(ROOT / "docker-compose.yml"), "--file", str(self.folder / "override.yml")]
        files += ["--env-file", str(self.folder / "pins.env"), "--project-name", _PROJECT]
        files += [word for name in profiles for word in ("--profile", name)]
        return self.engine.run("docker", "compose", *files, *words, env=self.settings, timeout=timeout)

    def manage(self, *words: str) -> str:
        return self.compose("exec", "-T", "worker-upkeep", "python", "manage.py", *words)

    def services(self) -> dict[str, str]:
        """What each container says about itself: its health, else whether it runs."""
        lines = self.compose("ps", "--all", "--format", "json").splitlines()
        rows = [row for line in lines if line.strip() for row in _rows(line)]
        return {row["Service"]: row.get("Health") or row["State"] for row in rows}

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
            return json.load(answer)

    def until(self, what: str, condition: Callable[[], object], seconds: float) -> None:
        end = time.monotonic() + seconds
        said: object = None
        while time.monotonic() < end:
            try:
                said = condition()
            except (OSError, urllib.error.URLError, StepError, ValueError) as error:
                said = None
                seen = f"{type(error).__name__}: {error}"
            else:
                seen = str(said)
            if said is True:
                return
            time.sleep(_PAUSE_SECONDS)
        raise StepError(f"{what}: not within {seconds:.0f} s; {seen}")

    def await_healthy(self, names: tuple[str, ...] = (), seconds: float = 240.0) -> None:
        def healthy() -> object:
            now = self.services()
            bad = {name: now.get(name, "gone") for name in names or now}
            bad = {
                name: state for name, state in bad.items() if state not in {"healthy", "running"} and name != "migrate"
            }
            return bad or True

        self.until("all containers are healthy", healthy, seconds)


def _rows(line: str) -> list[dict[str, Any]]:
    found = json.loads(line)
    return found if isinstance(found, list) else [found]


def write_secrets(folder: Path) -> None:
    """As docs/operations/install.md has them."""
    folder.mkdir(mode=0o755)
    made = {
        name: secrets.token_hex(24) for name in ("secret-key", "database-password", "redis-password", "metrics-token")
    }
    made["database-url"] = f"postgres://tidemark:{made['database-password']}@postgres/tidemark"
    made["redis-url"] = f"redis://:{made['redis-password']}@redis:6379/0"
    made["jenkins-dispatcher-token"] = f"11{secrets.token_hex(16)}"
    for name, value in made.items():
        _keep(folder / name, value, _SERVERS_USER if name.endswith("-password") else _SERVICE_USER)


def _keep(path: Path, value: str, user: int) -> None:
    path.touch(mode=0o600)
    path.write_text(value)
    os.chown(path, user, user)


def write_certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(folder / "tls-key"), "-out", str(folder / "tls-certificate")]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("tls-key", "tls-certificate"):
        os.chown(folder / name, _PROXY_USER, _PROXY_USER)


@dataclass(frozen=True)
class Outside:
    """The demo's tree and list, where containers can read them."""

    folder: Path
    archive: Archive
    posting: Posting

    def post(self, repository: Path) -> int:
        mails = make_mails(repository, self.posting)
        for mail in mails:
            self.archive.deliver(mail)
        return len(mails)


def make_outside(cache: Path, folder: Path, say: Callable[[str], None]) -> tuple[Outside, Path]:
    """And the tree's own repository."""
    with only_writer(cache, say):
        tree = ensure_tree(cache, say)
        posting = ensure_posting(folder.parent, "slow", tree.repository)
        shutil.copytree(tree.repository, folder / "linux")
    archive = Archive(folder / "archive", 1)
    archive.prepare(discussion(posting.posted_at))
    site = write_site(
        folder, repository=Path("/srv/world/linux"), branches=[posting.branch], list_url="/srv/world/archive/demo-list"
    )
    site.write_text(_one_machine(site.read_text(encoding="utf-8")), encoding="utf-8")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _SERVICE_USER, _SERVICE_USER, follow_symlinks=False)
    return Outside(folder, archive, posting), tree.repository


def _one_machine(text: str) -> str:
    first, *machines = text.split("[[machine]]\n")
    last = machines[-1].partition("[[sender]]")
    kept = next(entry for entry in machines if f'name = "{_MACHINE}"' in entry)
    return f"{first}[[machine]]\n{kept}[[sender]]{last[2]}"


def write_override(folder: Path, world: Path) -> None:
    (folder / "override.yml").write_text(_OVERRIDE.replace("WORLD", str(world)))


def series_of(site: Site, posting: Posting) -> dict[str, Any]:
    """The series as the API shows it; empty before it is there."""
    found = site.ask("/api/v1/series/")["results"]
    ids = {posting.root_message_id, posting.message_id(1)}
    own = [row for row in found if row["message_id"].strip("<>") in ids]
    return site.ask(f"/api/v1/series/{own[0]['id']}/") if own else {}


def stage_words(series: Mapping[str, Any]) -> str:
    stages = (series.get("progress") or {}).get("stages", [])
    return ", ".join(f"{stage['name']} {stage['state']}" for stage in stages) or str(series.get("state", "not there"))


def seed_compiler_cache(site: Site, ours: Path) -> str:
    """Write it into the volume; a container's read-only file system takes no `docker cp`."""
    place = site.engine.folder / "data" / "volumes" / f"{_PROJECT}_ccache" / "_data"
    if not ours.is_dir():
        return "there is none"
    shutil.copytree(ours, place, dirs_exist_ok=True)
    paths = [place, *place.rglob("*")]
    for path in paths:
        os.chown(path, _SERVICE_USER, _SERVICE_USER)
    return f"{len(paths)} files"


@contextmanager
def brought_down(site: Site) -> Iterator[None]:
    """Whatever happens inside, the project's containers, networks and volumes go."""
    try:
        yield
    finally:
        site.compose("down", "--volumes", "--remove-orphans", "--timeout", "20", profiles=("tls",))
