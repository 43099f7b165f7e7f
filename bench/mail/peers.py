"""A worker of bench.mail: patchwork's parser on SQLite in memory; runs in an environment of its own.

python -m bench.mail.peers CHECKOUT rows|pure MAILS

`rows` is what its users run: every mail parsed and stored in a transaction. `pure` calls only those of its functions
that need no database; that finds no series.
"""

import email
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from email.message import Message
from typing import Any

from bench.mail.mailboxes import Outcome, Thread, serve

_LIST = "bench.example.org"


class _Undone(Exception):  # noqa: N818 (no error: ends a round so that the next one finds the database empty)
    pass


def started(checkout: str) -> Any:
    """Its parser module, with an empty database that knows one project."""
    sys.path.insert(0, checkout)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "patchwork.settings.dev",
        "DATABASE_TYPE": "sqlite3",
        "DATABASE_NAME": ":memory:",
    }
    django = importlib.import_module("django")
    django.setup()
    # Otherwise Django keeps every statement of the round in memory.
    importlib.import_module("django.conf").settings.DEBUG = False
    importlib.import_module("logging").disable("CRITICAL")
    call_command = importlib.import_module("django.core.management").call_command
    call_command("migrate", verbosity=0)
    call_command("loaddata", "default_tags", "default_states", verbosity=0)
    models = importlib.import_module("patchwork.models")
    models.Project.objects.create(linkname="bench", name="Bench", listid=_LIST, listemail=f"all@{_LIST}")
    return importlib.import_module("patchwork.parser")


def rows(parser: Any, threads: Sequence[Thread]) -> Outcome:
    transaction = importlib.import_module("django.db.transaction")
    models = importlib.import_module("patchwork.models")
    failed = found = 0
    try:
        with transaction.atomic():
            for mail in (mail for thread in threads for mail in thread):
                try:
                    with transaction.atomic():
                        parser.parse_mail(email.message_from_bytes(mail), _LIST)
                except Exception as error:  # noqa: BLE001 (whatever it raises, it could not read this mail)
                    failed += not isinstance(error, parser.DuplicateMailError)
            found = models.Series.objects.count()
            raise _Undone
    except _Undone:
        return Outcome(sum(map(len, threads)), failed, found)


def pure(parser: Any, threads: Sequence[Thread]) -> Outcome:
    failed = 0
    for mail in (mail for thread in threads for mail in thread):
        try:
            _parse_only(parser, email.message_from_bytes(mail))
        except Exception:  # noqa: BLE001 (as above)
            failed += 1
    return Outcome(sum(map(len, threads)), failed, 0)


def _parse_only(parser: Any, mail: Message) -> None:
    """What its parse_mail does of a mail, in the same order, but for the database."""
    subject = mail.get("Subject")
    parser.find_message_id(mail)
    name, prefixes = parser.clean_subject(subject, ["bench"])
    answer = parser.subject_check(subject)
    parser.parse_series_marker(prefixes)
    parser.parse_version(name, prefixes)
    parser.find_references(mail)
    parser.find_date(mail)
    parser.find_headers(mail)
    diff, text = (parser.find_comment_content if answer else parser.find_patch_content)(mail)
    if not (diff or text):
        return
    parser.parse_pull_request(text)
    parser.split_from_header(parser.clean_header(mail.get("From")))
    if diff:
        parser.find_filenames(diff)


ROUNDS: dict[str, Callable[[Any, Sequence[Thread]], Outcome]] = {"rows": rows, "pure": pure}


if __name__ == "__main__":
    library = started(sys.argv[1])
    wanted = ROUNDS[sys.argv[2]]
    serve(lambda threads: wanted(library, threads))
