"""A worker of bench.mail: b4's library, in process and without the network; runs in b4's own environment."""

import copy
import importlib
from collections.abc import Sequence
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any

from bench.mail.mailboxes import Outcome, Thread, serve


def quiet() -> Any:
    """The library with its default settings; it asks neither git's settings nor the network."""
    b4: Any = importlib.import_module("b4")
    b4.can_network = False
    b4.MAIN_CONFIG = {**copy.deepcopy(b4.DEFAULT_CONFIG), "attestation-policy": "off"}
    b4.logger.setLevel("CRITICAL")
    return b4


def one_round(b4: Any, threads: Sequence[Thread]) -> Outcome:
    """Every thread as b4 reads it when somebody asks for it: all its mails, then each version that it found."""
    failed = found = 0
    parser = BytesParser(_class=EmailMessage, policy=b4.emlpolicy)
    for thread in threads:
        box = b4.LoreMailbox()
        for mail in thread:
            try:
                box.add_message(parser.parsebytes(mail))
            except Exception:  # noqa: BLE001 (whatever it raises, it could not read this mail)
                failed += 1
        for version in list(box.series):
            found += box.get_series(version, codereview_trailers=False) is not None
    return Outcome(sum(map(len, threads)), failed, found)


if __name__ == "__main__":
    library = quiet()
    serve(lambda threads: one_round(library, threads))
