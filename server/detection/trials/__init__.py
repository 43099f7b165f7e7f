"""One trial: which sessions count for it, what each look saw, and the comparisons of its cells."""
