"""The finding of a series."""
