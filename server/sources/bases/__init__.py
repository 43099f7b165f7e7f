"""Which commit a series is for, and how surely that is known."""
