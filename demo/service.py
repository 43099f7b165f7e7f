"""The running service as the demo meets it: started by the stack, told about the site, asked by its rows."""

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from demo.errors import DemoError
from demo.lab import write_site
from demo.processes import git
from demo.source import BRANCH
from demo.world import ROOT, World
from scripts.stack import Stack, StackError, stack_up

_Answer = TypeVar("_Answer")
# How long a database that was killed may take to come back.
_TRIES = 30
_PAUSE_SECONDS = 2.0


def start_service(world: World, local: Path) -> Stack:
    """Start the stack with the outside world's programs, or find it running."""
    stack = stack_up(ROOT, extra_programs=world.programs(), settings=world.settings(), local=local)
    missing = {program.name for program in world.programs()} - set(stack.programs)
    if missing:
        raise StackError(f"the service in {local} runs without the demo's {' and '.join(sorted(missing))}: `make stop`")
    return stack


def join_service(stack: Stack) -> None:
    """Let this process read the service's rows, with the settings of the stack."""
    os.environ["TIDEMARK_ENV_FILE"] = stack.env_file
    os.environ["TIDEMARK_PROCESS"] = "demo"
    os.environ["DJANGO_SETTINGS_MODULE"] = "server.settings"
    # Log lines would tear the display apart; what went wrong is in the rows and in the other processes' logs.
    os.environ["TIDEMARK_LOG_LEVEL"] = "CRITICAL"
    import django  # noqa: PLC0415 (the settings exist only now)

    django.setup()


def register_site(world: World, branch: str) -> None:
    """Tell the service its tree, list, machines and benchmarks, by the commands an operator uses.

    They can be run again: a database that goes away meanwhile is waited for.
    """
    from django.core.management import call_command  # noqa: PLC0415
    from django.core.management.base import CommandError  # noqa: PLC0415

    def load() -> bool:
        call_command("load_site", str(site), stdout=io.StringIO())
        call_command("load_benchmarks", str(ROOT / "agents" / "benchmarks"), stdout=io.StringIO())
        return True

    branches = list(dict.fromkeys((BRANCH, branch)))
    site = write_site(world.folder, repository=world.linux, branches=branches, list_url=world.archive.url)
    try:
        for _ in range(_TRIES):
            if ask(load):
                return
            time.sleep(_PAUSE_SECONDS)
    except CommandError as error:
        raise DemoError(f"the site was refused: {error}") from error
    raise DemoError("the database did not answer when the site was registered")


def tree_head(world: World, branch: str) -> str:
    """The commit the service should see."""
    return git(world.linux, "rev-parse", f"refs/heads/{branch}")


def ask(question: Callable[[], _Answer]) -> _Answer | None:
    """The answer of the rows; None while the database does not answer, for it may come back."""
    from django.db import InterfaceError, OperationalError, close_old_connections  # noqa: PLC0415

    close_old_connections()
    try:
        return question()
    except (OperationalError, InterfaceError):
        close_old_connections()
        return None
