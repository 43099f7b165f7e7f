"""A small lab for the fault matrix: the real service, the test server, and agents that speak the protocol."""
