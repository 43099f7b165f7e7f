"""Building kernels."""
