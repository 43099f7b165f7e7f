"""A build's log: raw with notes, as Jenkins keeps it, and the forms in which it is given out."""

import re

_NOTE = re.compile(rb"\x1b\[8mha:[^\x1b]*\x1b\[0m")


class Console:
    """Grows at its end. The caller holds the controller's lock."""

    def __init__(self) -> None:
        self.raw = b""

    def write(self, data: bytes) -> None:
        self.raw += data

    def line(self, text: str) -> None:
        if self.raw and not self.raw.endswith(b"\n"):
            self.raw += b"\n"
        self.raw += text.encode() + b"\n"

    def piece(self, start: int) -> tuple[bytes, int]:
        """What came after `start`, with CRLF, and where the next piece starts. A start beyond the end gives all."""
        if start > len(self.raw):
            start = 0
        return self.raw[start:].replace(b"\n", b"\r\n"), len(self.raw)

    def clean(self) -> bytes:
        return _NOTE.sub(b"", self.raw)


def note(text: str) -> str:
    """Text behind a note for Jenkins' own pages, which readers of the log have to strip."""
    return f"\x1b[8mha:////4AAAA\x1b[0m{text}"
