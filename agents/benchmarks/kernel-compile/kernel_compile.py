"""Compiles a kernel and prints how long it took: `kernel_compile.py CASE RUNS --source ARCHIVE --kept DIR ...`."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kernel_tree import CompileError, Tree, unpacked


def main() -> int:
    options = _options()
    try:
        tree = Tree(
            source=unpacked(options.source, options.kept),
            objects=options.scratch / "objects",
            config=options.config,
            target=options.target,
            jobs=options.jobs,
        )
        for _ in range(options.runs):
            tree.prepare()
            spent = tree.compile()
            for metric, value in (("real", spent.real), ("user", spent.user), ("system", spent.system)):
                print(json.dumps({"case": options.case, "metric": metric, "value": value}), flush=True)
    except (CompileError, OSError) as error:
        print(json.dumps({"case": options.case, "error": str(error)}), flush=True)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("runs", type=int)
    parser.add_argument("--source", type=Path, required=True, help="the archive of a kernel source")
    parser.add_argument("--kept", type=Path, required=True, help="where it is unpacked, once")
    parser.add_argument("--scratch", type=Path, required=True, help="where objects go")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--config", default="tinyconfig")
    parser.add_argument("--target", default="vmlinux")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
