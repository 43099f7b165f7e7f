"""Pieces of a build's log."""

import re

from server.lab.dispatch.jenkins.answers import LogPiece
from server.lab.dispatch.jenkins.client_values import LARGEST_ID, clean
from server.lab.dispatch.jenkins.client_wire import Answer
from server.lab.dispatch.jenkins.errors import Garbled

_OK = 200
# The controller's hidden notes: ESC[8mha: ... ESC[0m. An unclosed one is the beginning of one that was cut.
_NOTE = re.compile("\x1b\\[8mha:[^\x1b]*(?:\x1b\\[0m|$)")


def read_log(answer: Answer, path: str, start: int) -> LogPiece:
    """The text of one answer. A start beyond the end gives the whole log again: that is told by a smaller size."""
    size = answer.headers.get("X-Text-Size", "")
    known = size.isascii() and size.isdigit() and len(size) <= len(str(LARGEST_ID))
    if answer.status != _OK or not known:
        raise Garbled(f"{path}: answers {answer.status} with X-Text-Size {clean(size, 40)!r}, no log")
    text = _NOTE.sub("", answer.content.decode("utf-8", "replace").replace("\r\n", "\n"))
    repeated = int(size) < start
    return LogPiece(
        text="" if repeated else clean(text, len(text)),
        next_start=int(size),
        more=answer.headers.get("X-More-Data", "").lower() == "true",
        cut=answer.cut,
    )
