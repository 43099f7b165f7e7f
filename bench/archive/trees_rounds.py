"""The side of bench.archive.trees that polls: one round for each line that it reads, its figures as JSON."""

import json
import resource
import sys
import time
from typing import Any

from django.db import connection

from server.core import tasks
from server.sources.models import HeadMove, Tree
from workers import sources


def main(base: str, count: str) -> None:
    """Watch `count` trees below the address `base`."""
    for number in range(int(count)):
        url = f"{base}/tree-{number}.git"
        Tree.objects.create(name=f"tree-{number}", url=url, branch_patterns=["branch-[0-2]"], tag_patterns=["v*"])
    # The messages are delivered at once, in this process.
    tasks.send = _run
    for _ in sys.stdin:
        Tree.objects.update(polled_at=None)
        sys.stdout.write(json.dumps(_round()) + "\n")
        sys.stdout.flush()


def _run(name: str, arguments: tuple[int | str, ...]) -> None:
    assert name == "sources.fetch_tree"
    sources.fetch_tree(int(arguments[0]))


def _round() -> dict[str, Any]:
    known = HeadMove.objects.count()
    counter = _Counter()
    start, own, of_git = time.monotonic(), _cpu(resource.RUSAGE_SELF), _cpu(resource.RUSAGE_CHILDREN)
    with connection.execute_wrapper(counter):
        sources.poll_trees()
    own, of_git = _cpu(resource.RUSAGE_SELF) - own, _cpu(resource.RUSAGE_CHILDREN) - of_git
    return {
        "cpu": own + of_git,
        "git": of_git,
        "seconds": time.monotonic() - start,
        "queries": counter.count,
        "moved": HeadMove.objects.count() - known,
        "failing": Tree.objects.exclude(last_error="").count(),
    }


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute: Any, *arguments: Any) -> Any:
        self.count += 1
        return execute(*arguments)


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime
