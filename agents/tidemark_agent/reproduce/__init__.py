"""Running a published case by hand, on any machine."""
