"""`python -m demo`: one patch series from mail to verdict, on the running service."""

import argparse
import os
import platform
import sys

from demo.driver import Demo, Options
from demo.lab.show import Lab
from demo.postings import OUTCOMES
from demo.processes import DemoError, interrupt_once, only_demo, require_host, require_sandbox
from demo.world import ROOT
from scripts.stack import StackError, local_directory


def main(arguments: list[str] | None = None) -> int:
    options, lab = _options(arguments)
    interrupt_once()
    local = local_directory(ROOT)
    try:
        if lab:
            with only_demo(local / "lab") as claim:
                return Lab(local / "lab", claim, sys.stdout, once=options.once, fresh=options.fresh).run()
        if options.pull:
            # Another dispatcher is another site.
            local /= "pull"
        with only_demo(local) as claim:
            require_host(platform.machine())
            require_sandbox(os.environ)
            return Demo(options, local, claim, sys.stdout).run()
    except (DemoError, StackError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _options(arguments: list[str] | None) -> tuple[Options, bool]:
    """And whether the simulated lab is wanted instead."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--once", action="store_true", help="end the service at the end; exit status 0 only if every check holds"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="forget the last demo's database, archive and mails; caches stay"
    )
    parser.add_argument(
        "--lab", action="store_true", help="a full site to browse within minutes, simulated, instead of a real series"
    )
    parser.add_argument("--again", action="store_true", help="post the series once more, as new mails")
    parser.add_argument("--series", choices=sorted(OUTCOMES), default="slow", help="what is posted (default: slow)")
    parser.add_argument("--minutes", type=float, default=60.0, help="give up after this time (default: 60)")
    parser.add_argument(
        "--pull", action="store_true", help="a lab without a controller: each machine is a host that asks for work"
    )
    parser.add_argument("--flush", type=float, default=0.0, metavar="SECONDS", help="empty Redis so often meanwhile")
    found = parser.parse_args(arguments)
    options = Options(found.series, found.once, found.fresh, found.again, found.minutes, found.pull, found.flush)
    return options, found.lab


if __name__ == "__main__":
    sys.exit(main())
