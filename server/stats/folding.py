"""Arms of very many boots are folded to fewer, so that matrices over boots stay small."""

import numpy as np

from server.stats.shapes import Floats, Shape
from server.stats.terms import Batch

# With so many boots in an arm its variance is known well enough, and no structure adds to it.
_MOST_BOOTS = 64


def folded(batch: Batch) -> Batch:
    """The batch itself, or one in which neighbouring boots of long arms are averaged, each such mean as one boot.

    Means of neighbours still tell the variance of their own mean, whatever hangs together inside them.
    """
    if max(batch.shape.boots) <= _MOST_BOOTS:
        return batch
    parts = [_neighbours(batch.means[:, arm]) for arm in batch.shape.arms]
    base, patched = (part.shape[1] for part in parts)
    shape = Shape((1,) * base, (1,) * patched)
    return Batch(shape, np.concatenate(parts, axis=1), np.zeros_like(batch.within), batch.constant, batch.grid)


def _neighbours(means: Floats) -> Floats:
    boots = means.shape[1]
    if boots <= _MOST_BOOTS:
        return means
    starts = np.arange(_MOST_BOOTS) * boots // _MOST_BOOTS
    return np.asarray(np.add.reduceat(means, starts, axis=1) / np.diff(np.append(starts, boots)))
