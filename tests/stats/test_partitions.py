import itertools
import math

import numpy as np

from server.stats.changepoints.nominations import cheapest


def test_the_cheapest_partition_is_that_of_trying_all() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        costs = rng.random((8, 8)) * 10
        price = float(rng.random() * 5)
        tried = {}
        for inner in itertools.chain.from_iterable(itertools.combinations(range(1, 7), r) for r in range(7)):
            edges = [0, *inner, 7]
            tried[inner] = sum(costs[b, a] + price for a, b in itertools.pairwise(edges))
        best = min(tried, key=lambda inner: tried[inner])
        chosen, cost = cheapest(costs, price)
        assert tuple(chosen) == best
        assert math.isclose(cost, tried[best], rel_tol=1e-9)


def test_forbidden_segments_are_not_used() -> None:
    costs = np.full((4, 4), math.inf)
    costs[2, 0], costs[3, 2] = 1.0, 1.0
    assert cheapest(costs, 1.0) == ([2], 4.0)
