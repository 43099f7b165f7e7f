"""Mails: every one stored whole and once, and joined to its thread."""
