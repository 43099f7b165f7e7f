"""Machines as their /proc and /sys show them, written for the tests."""
