"""From a confirmed change to the revision that made it, and what each patch of a series adds."""
