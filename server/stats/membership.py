"""On which side of a cut's middle its points lie: counts stay honest where a benchmark alternates between modes."""

import numpy as np
from scipy import special

from server.stats.timelines import Floats, Ints


def crossing_evidence(left: Floats, right: Floats, middle: float) -> float:
    """-log10 of Fisher's exact p-value (J. R. Stat. Soc. 98, 1935) of the counts above `middle` on the two sides.

    One tail, towards the difference that is seen, and doubled. A mode that both sides visit counts as what it is.
    """
    n, m = len(left), len(right)
    above_left = int(np.count_nonzero(left > middle))
    above = above_left + int(np.count_nonzero(right > middle))
    # The tail runs away from the share that both sides together would give to the left one.
    counts = np.arange(max(0, above - m), min(n, above) + 1)
    tail = counts[counts >= above_left] if above_left * (n + m) > above * n else counts[counts <= above_left]
    logs = _log_choose(n, tail) + _log_choose(m, above - tail) - _log_choose(n + m, np.array([above]))
    return max(-float(special.logsumexp(logs) + np.log(2)) / float(np.log(10)), 0.0)


def _log_choose(n: int, k: Ints) -> Floats:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))
