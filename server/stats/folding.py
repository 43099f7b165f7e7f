"""Arms of very many boots are folded to fewer, so that matrices over boots stay small."""

import numpy as np

from server.stats.shapes import Floats, Shape
from server.stats.terms import Batch

# With so many boots in an arm its variance is known well enough, and no structure adds to it.
_MOST_BOOTS = 64


def folded(batch: Batch) -> Batch:
    """The batch itself, or one in which neighbouring boots of long arms are put together to groups.

    A group stands in the place of a boot, and its boots in that of runs. So a mean of many boots has a smaller variance
    than a single boot of the other arm, and neighbours that hang together are met like runs that do. Their order is no
    longer told: no trend is taken out.
    """
    if max(batch.shape.boots) <= _MOST_BOOTS:
        return batch
    means, within, least, sizes = [], [], [], []
    for place, arm in enumerate(batch.shape.arms):
        size = _sizes(arm.stop - arm.start)
        means.append(_means(batch.means[:, arm], size))
        apart = np.sum((batch.means[:, arm] - np.repeat(means[-1], size, axis=1)) ** 2, axis=1)
        within.append(np.maximum(apart, (size.sum() - len(size)) * batch.least[:, place]))
        least.append(batch.least[:, place] * np.mean(1 / size))
        sizes.append(tuple(size.tolist()))
    return Batch(
        shape=Shape(*sizes),
        means=np.concatenate(means, axis=1),
        within=np.stack(within, axis=1),
        constant=batch.constant,
        grid=batch.grid,
        least=np.stack(least, axis=1),
    )


def _sizes(boots: int) -> np.ndarray:
    groups = min(boots, _MOST_BOOTS)
    return np.diff(np.arange(groups + 1) * boots // groups)


def _means(boots: Floats, size: np.ndarray) -> Floats:
    starts = np.cumsum(size) - size
    means = np.add.reduceat(boots, starts, axis=1) / size
    # Equal boots have exactly their own mean.
    least, most = (extreme.reduceat(boots, starts, axis=1) for extreme in (np.minimum, np.maximum))
    return np.where(least == most, least, means)
