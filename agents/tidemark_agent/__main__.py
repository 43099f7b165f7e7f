"""The command line."""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any, Protocol

from tidemark_agent.cases import runner
from tidemark_agent.config import DEFAULT_CONFIG, AgentConfig, ConfigError, read_config
from tidemark_agent.lab import enrolment, hello
from tidemark_agent.lab.hello import run_hello
from tidemark_agent.lab.service import run_service
from tidemark_agent.prepare.preparation import restore_settings
from tidemark_agent.probe import facts
from tidemark_agent.reproduce import command
from tidemark_agent.run import REFUSED, Settings, run_attempt
from tidemark_agent.starter import print_troubles, serve
from tidemark_agent.version import agent_version
from tidemark_agent.wire.host import Place, place_here
from tidemark_agent.wire.spool import print_spool

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,59}")


class Commands(Protocol):
    """What argparse gives for a parser's commands."""

    def add_parser(self, name: str, **words: Any) -> argparse.ArgumentParser: ...


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        status = options.run(options)
    except ConfigError as error:
        print(f"tidemark-agent: {error}", file=sys.stderr)
        return REFUSED
    return int(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tidemark-agent", description="Builds, boots and measures kernels.")
    parser.add_argument("--version", action="version", version=agent_version())
    commands = parser.add_subparsers(dest="command", required=True)
    _add_run(commands)
    _add_lab(commands)
    _add_tools(commands)
    _add_walls(commands)
    return parser


def _add_run(commands: Commands) -> None:
    run = commands.add_parser("run", help="claim one attempt, do it, end")
    run.add_argument("key", type=_key, help="the attempt, as the dispatcher names it: session-7-1")
    run.add_argument("--server", help="address of the service: https://tidemark.example.org")
    run.add_argument("--token-file", type=Path, help="file that holds this host's token")
    run.add_argument("--state-dir", type=Path, help="where checkouts, caches and unsent results are kept")
    _add_config(run)
    _add_place(run)
    run.set_defaults(run=_run)


def _add_lab(commands: Commands) -> None:
    """What the machine's own init and its dispatcher call."""
    install = commands.add_parser("install", help="keep the attempt that `service` is to work on next")
    install.add_argument("key", type=_key, help="the attempt, as the dispatcher names it: session-7-1")
    _add_config(install)
    _add_place(install)
    install.set_defaults(run=_install)
    service = commands.add_parser("service", help="work, across reboots; run at each boot")
    _add_config(service)
    service.set_defaults(run=lambda options: run_service(options.config or DEFAULT_CONFIG))
    enrol = commands.add_parser("enrol", help="bring this host into a lab, by a code that was made for it there")
    enrolment.add_options(enrol)
    enrol.set_defaults(run=enrolment.enrol)
    hello = commands.add_parser("hello", help="tell the service that this host is there")
    hello.add_argument("--builder", action="store_true", help="this host boots no kernels: a builder, a control host")
    _add_config(hello)
    hello.set_defaults(run=lambda options: run_hello(_config(options), boots=not options.builder))


def _add_tools(commands: Commands) -> None:
    """What people call by hand."""
    restore = commands.add_parser("restore", help="put back settings that a killed agent left")
    _add_config(restore)
    restore.set_defaults(run=lambda options: restore_settings(_config(options).state_dir))
    cases = commands.add_parser("cases", help="list what this machine can measure, or why not")
    runner.add_case_options(cases)
    cases.set_defaults(run=runner.list_cases)
    probe = commands.add_parser("probe", help="say what this system is")
    probe.add_argument("--json", action="store_true", help="print all facts as JSON")
    probe.add_argument("--root", type=Path, default=Path("/"), help="read /proc and /sys below this directory")
    probe.set_defaults(run=facts.print_facts)
    reproduce = commands.add_parser("reproduce", help="run a published case on this machine")
    command.add_options(reproduce)
    reproduce.set_defaults(run=command.run)
    spool = commands.add_parser("spool", help="list results that the server does not have")
    _add_config(spool)
    spool.add_argument("--state-dir", type=Path, help="default: the one of the configuration")
    spool.set_defaults(run=lambda options: print_spool((options.state_dir or _config(options).state_dir) / "spool"))


def _add_walls(commands: Commands) -> None:
    """Builders, and the container in which a local dispatcher's agents run."""
    check = commands.add_parser("check", help="say whether this host may build other people's kernels")
    check.set_defaults(run=lambda options: print_troubles(**_walls(options)))
    starter = commands.add_parser("serve", help="start agents as a worker in another container asks")
    starter.add_argument("folder", type=Path, help="`agents` in the worker's TIDEMARK_STATE_DIR")
    starter.set_defaults(run=lambda options: serve(options.folder.resolve(), **_walls(options)))
    for parser in (check, starter):
        parser.add_argument("--sandbox", choices=["bwrap", "none"], default="bwrap", help="as TIDEMARK_BUILD_SANDBOX")
        parser.add_argument(
            "--cgroup", choices=["required", "optional"], default="required", help="as TIDEMARK_BUILD_CGROUP"
        )


def _walls(options: argparse.Namespace) -> dict[str, bool]:
    return {"sandbox": options.sandbox == "bwrap", "cgroup": options.cgroup == "required"}


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help=f"default: {DEFAULT_CONFIG}")


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", help="Jenkins' job that runs this; default: $JOB_NAME")
    parser.add_argument("--number", help="number of its build; default: $BUILD_NUMBER")
    parser.add_argument("--node", help="Jenkins' name for this host; default: $NODE_NAME")
    parser.add_argument("--script", default="", help="SHA-256 of the job's script, as the script itself tells it")


def _config(options: argparse.Namespace) -> AgentConfig:
    return read_config(options.config or DEFAULT_CONFIG)


def _place(options: argparse.Namespace) -> Place:
    return place_here(options.job, options.number, options.node, options.script)


def _run(options: argparse.Namespace) -> int:
    """Without a configuration where server, token and state are named: so the local dispatcher starts agents."""
    named = (options.server, options.token_file, options.state_dir)
    if all(named) and options.config is None:
        config = AgentConfig(server=options.server, token_file=options.token_file, state_dir=options.state_dir)
    else:
        config = _config(options)
    # Kept from before there was a configuration.
    ccache = config.build.ccache or os.environ.get("TIDEMARK_CCACHE_DIR")
    settings = Settings(
        server=options.server or config.server,
        token_file=(options.token_file or config.token_file).resolve(),
        state=(options.state_dir or config.state_dir).resolve(),
        ca_file=config.ca_file,
        ccache=Path(ccache).resolve() if ccache else None,
        jobs=config.build.jobs,
        git_credentials=config.build.git_credentials,
        power=config.power,
        place=_place(options),
    )
    return run_attempt(options.key, settings)


def _install(options: argparse.Namespace) -> int:
    """Jenkins' agent may call this through sudo, and with a file of its own it could send root's token anywhere."""
    if options.config is not None and os.environ.get("SUDO_UID", "0") != "0":
        raise ConfigError(f"through sudo the configuration is {DEFAULT_CONFIG}: --config is not allowed")
    return hello.install(options.key, _config(options), _place(options))


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no attempt key")
    return text


if __name__ == "__main__":
    sys.exit(main())
