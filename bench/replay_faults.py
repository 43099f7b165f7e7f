"""A replay on the whole local stack while its processes are killed at random: the same findings, nothing stuck.

    make bench-replay ARGS="--faults 30 --seed 1"

First every study is played undisturbed, then again and again until all faults have struck. The stack is one of its own,
and is removed at the end (--keep leaves it and its logs).
"""

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

import django

from bench.kit import ROOT, KitError
from bench.replay_faults_sweeps import SWEEP_SECONDS
from bench.replay_lines import expected_table
from bench.replay_studies import CASES, read_studies
from scripts.stack import stack_down, stack_remove, stack_up
from scripts.stack.places import Places

LOCAL = ROOT / ".local" / "replay"
NAMES = ("folio-copy-batch", "arm64-clear-pages")
_AGENT = """import sys
sys.path[:0] = [{root!r}, {agents!r}]
from pathlib import Path
from bench.replay_agent import run
sys.exit(run(Path({cases!r})))
"""


def main() -> None:
    options = _parser().parse_args()
    try:
        studies = read_studies(options.cases)
    except KitError as error:
        sys.exit(f"bench: {error}")
    stack_remove(ROOT, local=LOCAL)
    LOCAL.mkdir(parents=True)
    try:
        _set_up(options.cases)
        # It needs Django, which needs the stack.
        run: Any = importlib.import_module("bench.replay_faults_run")
        lines = run.measure(
            [studies[name] for name in options.studies],
            places=Places(ROOT, LOCAL),
            faults=options.faults,
            seed=options.seed,
            kinds=options.kinds,
        )
    finally:
        (stack_down if options.keep else stack_remove)(ROOT, local=LOCAL)
    print(expected_table(lines))
    sys.exit(0 if all(each.right for each in lines) else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--studies", nargs="+", default=NAMES, help="anon-large-folios bisects as well, and takes longer"
    )
    parser.add_argument("--kinds", default="", help="only faults whose names hold this, such as `frozen`")
    parser.add_argument("--keep", action="store_true", help="leave the stack's files")
    return parser


def _set_up(cases: Path) -> None:
    """Start the stack with simulated agents in place of the real ones, and set Django up on it."""
    agent = LOCAL / "agent.py"
    agent.write_text(_AGENT.format(root=str(ROOT), agents=str(ROOT / "agents"), cases=str(cases.resolve())))
    settings = {
        "TIDEMARK_LOCAL_AGENT": str(agent),
        "TIDEMARK_SWEEP_SECONDS": str(SWEEP_SECONDS),
        "TIDEMARK_NOISE_HOURS": "0",
        "TIDEMARK_LOCAL_SLOTS": "1",
        # Simulated agents build nothing.
        "TIDEMARK_BUILD_SANDBOX": "none",
        "TIDEMARK_BUILD_CGROUP": "optional",
    }
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        del os.environ[name]
    stack = stack_up(ROOT, local=LOCAL, settings=settings, durable=False)
    os.environ["TIDEMARK_ENV_FILE"] = stack.env_file
    os.environ["DJANGO_SETTINGS_MODULE"] = "server.settings"
    django.setup()
    # Each step of each row is a line of the log.
    logging.disable(logging.WARNING)


if __name__ == "__main__":
    main()
