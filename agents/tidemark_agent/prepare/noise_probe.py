"""Sits on one CPU after the other and watches the clock: whoever else runs there shows as a gap.

A program of its own, `python3 -I -S -c SOURCE CPUS MILLISECONDS`, without anything of the agent's: neither its threads
nor its interpreter lock may be taken for noise of the machine. Prints one JSON object for each CPU.
"""

import json
import os
import sys
import time

# A look at the clock takes below a microsecond, even in an interpreter: a gap of 10 us is somebody else's.
_GAP_NS = 10_000


def watch(cpu: int, nanoseconds: int) -> dict[str, float]:
    """`max_gap_us` and `gaps_us` (all together) of `gaps`, in `watched_us`; gaps below 10 us are the loop's own."""
    os.sched_setaffinity(0, {cpu})
    clock = time.perf_counter_ns
    started = last = clock()
    longest = together = gaps = 0
    while last - started < nanoseconds:
        now = clock()
        gap = now - last
        longest = max(longest, gap)
        if gap > _GAP_NS:
            together += gap
            gaps += 1
        last = now
    watched = last - started
    return {
        "cpu": cpu,
        "gaps": gaps,
        "gaps_us": together / 1000,
        "max_gap_us": longest / 1000,
        "watched_us": watched / 1000,
    }


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        print(json.dumps(watch(int(name), int(sys.argv[2]) * 1_000_000)))
