"""What is measured while parts fail: two patches, one of which slows one of three simulated machines down."""

from demo.lab.replay.studies import Row, Spread, Study

NAME = "chaos"
BENCHMARK, METRIC = "chaos-copy", "throughput"
CASES = ("small", "large")
SLOWED = "zen3"
UARCHS = ("icelakex", SLOWED, "zen5")
# The first patch does this to one machine, the second does nothing anywhere.
_SLOWER = 0.75
_QUIET = Spread(0.002, 0.002)


def _row(uarch: str, case: str) -> Row:
    step = _SLOWER if uarch == SLOWED else 1.0
    expected = "regressed" if uarch == SLOWED else "unchanged"
    return Row(
        uarch, BENCHMARK, case, METRIC, "GB/s", "higher", "all", 20.0, (step, 1.0), (_QUIET, _QUIET), expected=expected
    )


STUDY = Study(NAME, NAME, ("slower", "nothing"), tuple(_row(uarch, case) for uarch in UARCHS for case in CASES))
