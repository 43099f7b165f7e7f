"""`python -m scripts.stack up|down|status|env`: the local stack by hand."""

import argparse
import sys
from pathlib import Path

from scripts.stack import StackError, local_directory, stack_down, stack_remove, stack_status, stack_up
from scripts.stack.places import Places
from scripts.stack.servers import choose_postgres, serve_postgres

ROOT = Path(__file__).resolve().parent.parent.parent


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except StackError as error:
        print(f"stack: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scripts.stack", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start it, or say where it runs already")
    up.add_argument("--servers-only", action="store_true", help="only PostgreSQL and Redis")
    up.add_argument("--not-durable", action="store_true", help="faster; data may not outlive a crash of the machine")
    up.set_defaults(run=_up)
    commands.add_parser("down", help="end everything it started").set_defaults(run=_down)
    commands.add_parser("remove", help="end it and delete its data").set_defaults(run=_remove)
    commands.add_parser("status", help="say what runs").set_defaults(run=_status)
    commands.add_parser("env", help='print what `eval "$(...)"` sets, for manage.py and psql').set_defaults(run=_env)
    serve = commands.add_parser("serve-postgres", help="become the private PostgreSQL (for supervisor)")
    serve.add_argument("--not-durable", action="store_true")
    serve.set_defaults(run=_serve_postgres)
    return parser


def _up(options: argparse.Namespace) -> int:
    stack = stack_up(ROOT, services=not options.servers_only, durable=not options.not_durable)
    what = "runs" if stack.fresh else "runs already"
    print(f"stack: {what} (supervisor {stack.pid}, {', '.join(stack.programs)}) {stack.url}".rstrip())
    print(stack.note)
    return 0


def _down(_options: argparse.Namespace) -> int:
    print("stack: ended" if stack_down(ROOT) else "stack: nothing was running")
    return 0


def _remove(_options: argparse.Namespace) -> int:
    stack_remove(ROOT)
    return 0


def _status(_options: argparse.Namespace) -> int:
    stack, lines = stack_status(ROOT)
    if stack is None:
        print(f"stack: nothing runs in {local_directory(ROOT)}")
        return 3
    print("\n".join([f"stack: supervisor {stack.pid} {stack.url}", stack.note, *lines]))
    return 0


def _env(_options: argparse.Namespace) -> int:
    places = Places(ROOT, local_directory(ROOT))
    if not places.env_file.exists():
        raise StackError(f"no stack was ever started in {places.local}")
    print(f"export TIDEMARK_LOCAL='{places.local}' TIDEMARK_ENV_FILE='{places.env_file}'")
    return 0


def _serve_postgres(options: argparse.Namespace) -> int:
    serve_postgres(choose_postgres(Places(ROOT, local_directory(ROOT))), durable=not options.not_durable)
    return 1


if __name__ == "__main__":
    sys.exit(main())
