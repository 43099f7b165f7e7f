"""Text that other programs printed, made fit to be read and stored."""

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_a-z])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# The kernel's stamp before a message of its own, which may stand in the middle of a program's line.
PRINTK = re.compile(r"\[ *\d+\.\d{6}\] ")


def clean_text(raw: bytes) -> str:
    """Bytes of a console or a program as text: without escape sequences, carriage returns and other controls."""
    text = raw.decode("utf-8", errors="replace")
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def last_bytes(text: str, count: int) -> str:
    """The end of `text` that fits into `count` bytes of UTF-8."""
    return text.encode("utf-8", errors="replace")[-count:].decode("utf-8", errors="ignore")
