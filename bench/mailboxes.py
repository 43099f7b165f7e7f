"""Real mails of a folder, thread by thread; needs nothing but the standard library, so that peers can read them too."""

import mailbox
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "mail-corpus"
_ENDINGS = frozenset({".mbox", ".eml", ".mbx", ".mail"})
_NAMING = frozenset({b"message-id", b"in-reply-to", b"references"})
_HEADER = re.compile(rb"(?m)^([A-Za-z-]+):((?:.*\n(?=[ \t]))*.*\n?)")
_ID = re.compile(rb"<([^<>\s]+)>")
_END = re.compile(rb"\r?\n\r?\n")
Thread = Sequence[bytes]


class NoMailsError(Exception):
    """The folder is missing or holds no mail."""


def threads_in(folder: Path) -> list[Thread]:
    """The mails of every file below `folder`, in the order of the files' names. Raises NoMailsError."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _ENDINGS and path.is_file())
    found = [mails for path in files if (mails := mails_of(path))]
    if not found:
        raise NoMailsError(f"no mails in {folder}: name a folder that holds mbox files")
    return found


def mails_of(path: Path) -> Thread:
    """All mails of an mbox; a file that is none holds one mail."""
    box = mailbox.mbox(path, create=False)
    try:
        return [box.get_bytes(key) for key in box.iterkeys()] or [path.read_bytes()]
    finally:
        box.close()


def renamed(mails: Thread, copy: int) -> Thread:
    """The same thread under other Message-IDs, by other senders; copy 0 is the thread itself."""
    return [_renamed(mail, b"copy-%d." % copy) for mail in mails] if copy else mails


def _renamed(mail: bytes, mark: bytes) -> bytes:
    end = _END.search(mail)
    head, rest = (mail[: end.start()], mail[end.start() :]) if end else (mail, b"")

    def other(header: re.Match[bytes]) -> bytes:
        name = header[1].lower()
        if name in _NAMING:
            return _ID.sub(rb"<" + mark + rb"\1>", header[0])
        # Otherwise patches that were sent without threading would all be by one person, in the same minute.
        return header[0].replace(b"@", b"@" + mark) if name == b"from" else header[0]

    return _HEADER.sub(other, head) + rest


def many(threads: Sequence[Thread], mails: int) -> Iterator[Thread]:
    """Whole threads until there are at least so many mails: renamed copies where there are not enough of them."""
    given = 0
    for copy in count():
        for thread in threads:
            if given >= mails:
                return
            yield renamed(thread, copy)
            given += len(thread)
