"""Rows read and written many at a time."""
