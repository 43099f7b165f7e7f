"""Boot drivers: how a kernel is started on a machine, and how what it showed is read."""
