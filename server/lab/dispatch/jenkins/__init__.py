"""Dispatching through a Jenkins controller: a thin client, and the adapter that matches runs by their key alone."""
