"""How requests reach Django: connections in an event loop, whole requests in threads (docs/decisions/0024)."""
