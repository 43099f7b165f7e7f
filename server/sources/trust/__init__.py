"""Who sent a mail, what proves it, and whose patches may run."""
