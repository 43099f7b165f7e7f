"""The whole way through a real Jenkins controller: python -m scripts.e2e_jenkins, or make e2e-jenkins.

Makes two nodes and their jobs with a prefix of their own, builds on the one and runs sessions on the other; cancels,
aborts, loses agents, takes tokens away, edits a job, puts a node offline, restarts the controller if told how; prints a
table, and removes what it made. The last line says whether all was tried.
"""

import argparse
import importlib
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

from bench.scratch_database import scratch_database, servers
from demo.processes import only_writer
from demo.source import ensure_tree
from scripts.e2e_jenkins.host import (
    DEFAULT_COMMAND,
    Forms,
    ProcessAgents,
    Report,
    answering,
    listening,
    missing_program,
    own_folder,
)

ROOT = Path(__file__).resolve().parents[2]
# Short, so that a lost agent is found soon; an agent beats three times in it.
LEASE_SECONDS = 20.0
_PATIENCE_SECONDS = 180.0
# Longer than a controller is away when it restarts.
_RESTART_SECONDS = 90.0
# Git writes them in a second or more on a fast disk.
_MANY_FILES = 40_000


def main() -> int:
    options = _options()
    if program := missing_program(options.agent_command):
        print(f"no {program} in PATH: the nodes' agents need it (or name a command: JENKINS_AGENT_CMD)")
        return 2
    interrupted = _interruptions()
    prefix, report = f"e2e-{secrets.token_hex(3)}-", Report()
    try:
        with servers() as environment, own_folder(prefix, report) as place, listening() as server:
            url = f"http://127.0.0.1:{server.server_port}"
            os.environ.update(environment)
            os.environ.update(_settings(options, prefix, url, place))
            with scratch_database(), answering(server):
                _run(options, prefix, url, place, report)
    except (KeyboardInterrupt, Exception):
        # A query that was broken off may complain louder than the signal that did it.
        if not interrupted:
            raise
    print(f"\n{report.table()}\n\n{'interrupted' if interrupted else report.verdict()}")
    return 0 if report.ok and not interrupted else 1


def _interruptions() -> list[int]:
    """Signals that ended the run, from now on: whoever ends it wants nothing of it to stay on the controller."""
    heard: list[int] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hear)
    return heard


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.e2e_jenkins", description=__doc__)
    given = os.environ.get
    parser.add_argument("--url", default=given("JENKINS_URL"), help="the controller (JENKINS_URL)")
    parser.add_argument("--user", default=given("JENKINS_USER"), help="who may make nodes and jobs (JENKINS_USER)")
    parser.add_argument("--token-file", default=given("JENKINS_TOKEN_FILE"), help="JENKINS_TOKEN_FILE")
    parser.add_argument(
        "--dispatcher",
        default=given("JENKINS_DISPATCHER") or given("JENKINS_USER"),
        help="the service's own user, to try its rights as well (JENKINS_DISPATCHER)",
    )
    parser.add_argument(
        "--dispatcher-token-file", default=given("JENKINS_DISPATCHER_TOKEN_FILE") or given("JENKINS_TOKEN_FILE")
    )
    parser.add_argument("--ca-file", default=given("JENKINS_CA_FILE", ""), help="JENKINS_CA_FILE")
    parser.add_argument("--restart-command", default=given("JENKINS_RESTART_CMD", ""), help="JENKINS_RESTART_CMD")
    parser.add_argument("--kill-command", default=given("JENKINS_KILL_CMD", ""), help="JENKINS_KILL_CMD")
    parser.add_argument("--no-kernel", action="store_true", help="without a kernel that boots: some minutes less")
    parser.add_argument(
        "--agent-command",
        default=given("JENKINS_AGENT_CMD") or DEFAULT_COMMAND,
        help="how a node's agent is started, with {jar} {url} {name} {secret} {folder} (JENKINS_AGENT_CMD)",
    )
    options = parser.parse_args()
    if not (options.url and options.user and options.token_file):
        parser.error("say which controller: JENKINS_URL=... JENKINS_USER=... JENKINS_TOKEN_FILE=...")
    return options


def _settings(options: argparse.Namespace, prefix: str, url: str, place: Path) -> dict[str, str]:
    return {
        "TIDEMARK_DISPATCHER": "jenkins",
        "TIDEMARK_SITE_URL": url,
        "TIDEMARK_AGENT_URL": url,
        "TIDEMARK_STATE_DIR": str(place / "service"),
        "TIDEMARK_MIRROR_URL": str(place / "tree"),
        "TIDEMARK_LEASE_SECONDS": f"{LEASE_SECONDS:.0f}",
        "TIDEMARK_JENKINS_URL": options.url,
        "TIDEMARK_JENKINS_USER": options.dispatcher,
        "TIDEMARK_JENKINS_TOKEN_FILE": str(_own_token(options, place)),
        "TIDEMARK_JENKINS_CA_FILE": options.ca_file,
        "TIDEMARK_JENKINS_PREFIX": prefix,
        "TIDEMARK_JENKINS_AGENT": str(place / "agent"),
        "TIDEMARK_JENKINS_FOLDER": str(place / "nodes"),
        "TIDEMARK_LAB_CONTROL": "",
        # Nothing that a stranger wrote is built.
        "TIDEMARK_BUILD_CGROUP": "optional",
        "TIDEMARK_LOG_LEVEL": "ERROR",
    }


def _own_token(options: argparse.Namespace, place: Path) -> Path:
    """A copy: the run takes the token away from the service for a while, to see what it does."""
    copy = place / "dispatcher-token"
    copy.touch(mode=0o600)
    copy.write_bytes(Path(options.dispatcher_token_file).expanduser().read_bytes())
    return copy


def _kernel(options: argparse.Namespace) -> Any:
    """The demo's kernel: its sources are fetched once, and stay in .cache for both."""
    if options.no_kernel:
        return None
    site = importlib.import_module("scripts.e2e_jenkins.site")
    cache = ROOT / ".cache" / "demo"
    with only_writer(cache, print):
        tree = ensure_tree(cache, print)
    return site.RealKernel(tree.repository, tree.head, (ROOT / "demo" / "kernel.config").read_text(encoding="utf-8"))


def _run(options: argparse.Namespace, prefix: str, url: str, place: Path, report: Report) -> None:
    # Nothing of the service can be imported before its settings are there.
    whole = importlib.import_module("scripts.e2e_jenkins.whole")
    forms = Forms()
    agents = ProcessAgents(options.agent_command, options.url, place, place / "agent.jar")
    wishes = whole.Wishes(
        prefix=prefix,
        service_url=url,
        folder=place,
        admin=options.user,
        admin_token_file=Path(options.token_file).expanduser().resolve(),
        lease_seconds=LEASE_SECONDS,
        patience=_PATIENCE_SECONDS,
        restart_seconds=_RESTART_SECONDS,
        many_files=_MANY_FILES,
        restart_command=options.restart_command,
        kill_command=options.kill_command,
        kernel=_kernel(options),
        jar=place / "agent.jar" if "{jar}" in options.agent_command else None,
    )
    try:
        whole.play_whole(wishes, agents, forms, report)
    finally:
        print("\nrequests by form:")
        for form, count in sorted(forms.counts.items()):
            print(f"{count:6} {form}")


if __name__ == "__main__":
    sys.exit(main())
