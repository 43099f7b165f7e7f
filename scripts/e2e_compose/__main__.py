"""The containers for real: python -m scripts.e2e_compose, or make e2e-compose (as root).

Makes base images of Debian's packages, pins them by digest in a registry of its own, builds docker-compose.yml's
images, brings them up, posts the demo's series and follows it to its verdict and mail while each service is restarted,
looks at the pages through the TLS proxy, brings all down, and prints a table. It has a Docker daemon of its own, of
which nothing is left. The builder begins with the demo's compiler cache, where there is one.
"""

import argparse
import os
import signal
import ssl
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from demo.world import ROOT
from scripts.e2e_compose.bases import make_bases
from scripts.e2e_compose.engine import Engine, engine, left_behind
from scripts.e2e_compose.site import (
    Outside,
    Site,
    brought_down,
    make_outside,
    seed_compiler_cache,
    series_of,
    stage_words,
    write_certificate,
    write_override,
    write_secrets,
)
from scripts.e2e_jenkins.host import Report, StepError

_BUILD_SECONDS = 2400.0
_VERDICT_SECONDS = 5400.0
# In the order of dependence; each is restarted once while the series is on its way.
RESTARTED = (
    "redis", "postgres", "web", "beat", "sink", "builder", "worker-sources", "worker-builds", "worker-lab",
    "worker-detection", "worker-reports", "worker-upkeep",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.e2e_compose", description=__doc__)
    parser.add_argument("--port", type=int, default=8790, help="the first of four free ports on the loopback")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    report = Report()
    scratch = Path(
        tempfile.mkdtemp(prefix="tidemark-e2e-", dir=ROOT / ".local" if (ROOT / ".local").is_dir() else None)
    )
    scratch.chmod(0o755)
    try:
        _play(report, scratch, options.port)
    except (StepError, KeyboardInterrupt) as error:
        print(f"ended: {error or 'interrupted'}", flush=True)
    rest = left_behind(scratch)
    print(f"\n{report.table()}\n\n{report.verdict()}\nleft behind: {', '.join(rest) or 'nothing'}")
    return 0 if report.ok and not rest else 1


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _play(report: Report, scratch: Path, port: int) -> None:
    cache = ROOT / ".cache" / "e2e-compose"
    cache.mkdir(parents=True, exist_ok=True)
    with engine(cache, scratch, port) as docker:
        site = Site(docker, scratch, port + 1, _settings(scratch, port))
        world = scratch / "world"
        with report.step("base images are made of Debian's packages, and pushed") as step:
            bases = make_bases(docker, cache, scratch)
            step.said = f"{len(bases)} images"
        with report.step("`make pins` names them by their digests") as step:
            step.said = _pin(docker, scratch, bases)
        with report.step("the outside: a kernel tree, and a list archive") as step:
            outside, repository = make_outside(ROOT / ".cache" / "demo", world, print)
            step.said = outside.posting.base[:12]
        write_secrets(scratch / "secrets")
        write_certificate(scratch / "secrets")
        write_override(scratch, world)
        with brought_down(site):
            _follow(report, site, outside, repository)


def _settings(scratch: Path, port: int) -> dict[str, str]:
    return {
        "TIDEMARK_SECRETS": str(scratch / "secrets"),
        "TIDEMARK_PORT": str(port + 1),
        "TIDEMARK_HTTPS_PORT": str(port + 2),
        "TIDEMARK_HTTP_PORT": str(port + 3),
    }


def _pin(docker: Engine, scratch: Path, bases: dict[str, str]) -> str:
    named = {f"TIDEMARK_{name.upper()}_IMAGE": address for name, address in bases.items()}
    docker.run(
        sys.executable, "-m", "scripts.pins", "--out", scratch / "pins.env", "--only", *named,
        env={**named, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    lines = (scratch / "pins.env").read_text().splitlines()
    return "; ".join(line.partition("=")[2].rpartition("/")[2][:30] for line in lines)


def _follow(report: Report, site: Site, outside: Outside, repository: Path) -> None:
    with report.step("`docker compose build`") as step:
        # One after the other: without buildx each would make anew what they share.
        for name in ("web", "builder"):
            site.compose("build", name, timeout=_BUILD_SECONDS)
        step.said = " ".join(site.engine.run("docker", "images", "--format", "{{.Repository}}={{.Size}}").split()[:3])
    with report.step("`docker compose up`: all are healthy") as step:
        site.compose("up", "--detach", "--no-build", timeout=600)
        site.await_healthy()
        step.said = f"{len(site.services())} containers"
    with report.step("`load_site`, `load_benchmarks` inside") as step:
        site.manage("load_site", "/srv/world/site.toml")
        site.manage("load_benchmarks", "agents/benchmarks")
    with report.step("the builder gets the demo's compiler cache") as step:
        step.said = seed_compiler_cache(site, ROOT / ".cache" / "ccache")
    with report.step("mails are posted, and become a series"):
        outside.post(repository)
        site.until("the series is there", lambda: bool(series_of(site, outside.posting)), 600)
    for name in RESTARTED:
        with report.step(f"{name} is restarted under way, and healthy again") as step:
            before = stage_words(series_of(site, outside.posting))
            site.compose("restart", "--timeout", "15", name, timeout=180)
            site.await_healthy((name, "web"))
            site.until("the page answers", lambda: bool(series_of(site, outside.posting)), 120)
            step.said = f"at: {before}"
    with report.step("the series has its verdict") as step:
        site.until("the verdict", lambda: _ended(site, outside), _VERDICT_SECONDS)
        step.said = _verdict(site, outside)
    with report.step("its mail is in the sink, once") as step:
        site.until("the mail", lambda: _mails(site, outside) == 1 or f"{_mails(site, outside)} mails", 300)
        step.said = "1 mail answers the thread"
    with report.step("profile tls: pages through the proxy, packed, and agents past it") as step:
        step.said = _through_the_proxy(site)
    with report.step("walls: no secret and no way out in the builder") as step:
        step.said = _walls(site)


def _ended(site: Site, outside: Outside) -> object:
    series = series_of(site, outside.posting)
    state = (series.get("progress") or {}).get("state") or series.get("state")
    if state in {"failed", "held"}:
        raise SystemExit(f"the series is {state}: {series}")
    return state == "done" or stage_words(series)


def _verdict(site: Site, outside: Outside) -> str:
    finding = series_of(site, outside.posting)["finding"]
    number = finding["id"] if isinstance(finding, dict) else finding
    found = site.ask(f"/api/v1/findings/{number}/")
    if found["verdict"] != "regressed":
        raise StepError(f"the verdict is {found['verdict']}")
    return str(found.get("headline") or found["verdict"])


def _mails(site: Site, outside: Outside) -> int:
    script = "import pathlib;print('\\0'.join(p.read_text() for p in pathlib.Path('/var/lib/sink/mail').glob('*/*')))"
    texts = site.compose("exec", "-T", "sink", "python", "-c", script).split("\0")
    return sum(f"In-Reply-To: <{outside.posting.root_message_id}>" in text for text in texts)


def _through_the_proxy(site: Site) -> str:
    https = site.settings["TIDEMARK_HTTPS_PORT"]
    behind = {
        **site.settings,
        "TIDEMARK_BEHIND_TLS": "1",
        "TIDEMARK_SITE_URL": f"https://localhost:{https}",
        "TIDEMARK_AGENT_URL": "http://proxy:8090",
    }
    site = Site(site.engine, site.folder, site.port, behind)
    site.compose("up", "--detach", "--no-build", profiles=("tls",))
    site.await_healthy(("web", "proxy", "worker-lab"))
    context = ssl.create_default_context(cafile=str(site.folder / "secrets" / "tls-certificate"))
    request = urllib.request.Request(f"https://localhost:{https}/", headers={"Accept-Encoding": "gzip"})

    def page() -> object:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:  # noqa: S310 (ours)
            packed, hsts = answer.headers["Content-Encoding"], answer.headers["Strict-Transport-Security"]
            return (packed == "gzip" and bool(hsts)) or f"{packed} {hsts}"

    site.until("the page through the proxy", page, 120)
    asked = (
        "import urllib.request, urllib.error\n"
        "try: urllib.request.urlopen('http://proxy:8090/api/v1/agent/attempts/none/claim/', b'{}')\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
    )
    code = site.compose("exec", "-T", "builder", "python3", "-c", asked).strip()
    if code != "401":
        raise StepError(f"an agent without a token is answered {code} through the proxy")
    return "gzip, HSTS, agents on their own port (401 without a token)"


def _walls(site: Site) -> str:
    """What the walls of docs/operations/install.md say, asked from inside."""
    script = (
        "import os,socket,pathlib\n"
        "assert not pathlib.Path('/run/secrets').exists(), 'secrets'\n"
        "assert not any('SECRET' in n or 'DATABASE' in n for n in os.environ), 'environment'\n"
        "for host, port in (('postgres', 5432), ('redis', 6379), ('sink', 1025), ('1.1.1.1', 80)):\n"
        "    try: socket.create_connection((host, port), timeout=3)\n"
        "    except OSError: continue\n"
        "    raise SystemExit(f'{host} is reached')\n"
        "try: open('/usr/x', 'w')\n"
        "except OSError: print('closed', os.getuid())\n"
    )
    said = site.compose("exec", "-T", "builder", "python3", "-c", script).strip()
    if said != "closed 10001":
        raise StepError(said)
    return "no secret, no database, no Redis, no sink, no outside, nothing to write to, user 10001"


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"in all {time.monotonic() - started:.0f} s of wall time, load {os.getloadavg()[0]:.1f} at the end")
    sys.exit(code)
