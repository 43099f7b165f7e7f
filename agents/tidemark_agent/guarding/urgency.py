"""Looking in time although the command keeps every CPU busy."""

import os


def run_before_others() -> None:
    """Run before everything that is not urgent, where this process may (root); its children do not inherit that.

    Only root's commands need it: the kernel holds those of all others to their number of processes by itself. A fork
    bomb has thousands of processes within a tenth of a second, and each of them would have its turn first.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        return
