"""`tidemark-agent restore`: put back the settings that a killed agent left, by hand."""

import sys
import threading
from pathlib import Path

from tidemark_agent.log import Log
from tidemark_agent.prepare.model import PrepareConfig
from tidemark_agent.prepare.preparation import JOURNAL_NAME, Preparation

_PROBLEMS = 1


def restore_settings(state: Path, *, root: Path = Path("/")) -> int:
    """Exit status 0 if everything is as it was, 1 with the problems on stderr if something is not."""
    journal = state / JOURNAL_NAME
    if not journal.exists():
        print(f"nothing to restore: {journal} does not exist")
        return 0
    preparation = Preparation(PrepareConfig(), journal=journal, log=Log(), stop=threading.Event(), root=root)
    problems = preparation.replay()
    for problem in problems:
        print(f"tidemark-agent: {problem}", file=sys.stderr)
    if problems:
        return _PROBLEMS
    print("restored")
    return 0
