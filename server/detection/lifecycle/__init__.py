"""The life of findings: checks before a claim, confirmation, and every way a claim ends."""
