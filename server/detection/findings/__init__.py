"""The finding of a series: what its comparisons say together."""
