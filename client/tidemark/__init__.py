"""A Tidemark service from Python: see `Tidemark`."""

from tidemark.api import ApiError, Tidemark

__all__ = ["ApiError", "Tidemark"]
