"""Trees over time: heads against the pinned reference, their timelines, and what steps among them become."""
