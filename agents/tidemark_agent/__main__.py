"""The command line: `run KEY`, `probe`, `--version`."""

import argparse
import json
import re
import sys
from pathlib import Path

from tidemark_agent.probe import probe_system
from tidemark_agent.run import Settings, run_attempt
from tidemark_agent.version import agent_version

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,59}")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "probe":
        return _probe(options.root, as_json=options.json)
    settings = Settings(
        server=options.server, token_file=options.token_file.resolve(), state=options.state_dir.resolve()
    )
    return run_attempt(options.key, settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tidemark-agent", description="Builds, boots and measures kernels.")
    parser.add_argument("--version", action="version", version=agent_version())
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="claim one attempt, do it, end")
    run.add_argument("key", type=_key, help="the attempt, as the dispatcher names it: session-7-1")
    run.add_argument("--server", required=True, help="address of the service: https://tidemark.example.org")
    run.add_argument("--token-file", required=True, type=Path, help="file that holds this machine's token")
    run.add_argument(
        "--state-dir", required=True, type=Path, help="where checkouts, caches and unsent results are kept"
    )
    probe = commands.add_parser("probe", help="say what this system is")
    probe.add_argument("--json", action="store_true", help="print all facts as JSON")
    probe.add_argument("--root", type=Path, default=Path("/"), help="read /proc and /sys below this directory")
    return parser


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no attempt key")
    return text


def _probe(root: Path, *, as_json: bool) -> int:
    facts = probe_system(root)
    if as_json:
        print(json.dumps(facts.as_json(), indent=2))
        return 0
    where = f"virtual, {facts.hypervisor}" if facts.virtual else "physical"
    print(f"{facts.uarch}: {facts.model_name} ({where})")
    print(f"{facts.cpus} CPUs, {facts.memory_kb // 1024} MiB, Linux {facts.kernel_release}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
