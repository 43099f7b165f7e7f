"""Mails as their readers get them, to the last byte.

manage.py shell -c "from tests.reports.test_goldens import write; write()" writes them anew, to be read as who gets them
would.
"""

from pathlib import Path

import pytest

from server.reports.composer.mail_text import MOST_LINES, compose
from server.reports.composer.told import Told
from tests.reports.telling import MAILS

GOLDENS = Path(__file__).parent / "goldens"


def shown(told: Told) -> str:
    text = compose(told)
    return f"Subject: {text.subject}\n\n{text.body}"


@pytest.mark.parametrize("name", MAILS)
def test_mail_is_as_it_was_reviewed(name: str) -> None:
    assert shown(MAILS[name]) == (GOLDENS / f"{name}.txt").read_text(encoding="ascii")


@pytest.mark.parametrize("name", MAILS)
def test_mail_fits(name: str) -> None:
    lines = compose(MAILS[name]).body.splitlines()
    assert len(lines) <= MOST_LINES
    # An address cannot be broken.
    assert max(len(line) for line in lines if "://" not in line) <= 78


def test_no_golden_is_without_its_mail() -> None:
    assert {path.stem for path in GOLDENS.iterdir()} == set(MAILS)


def write() -> None:
    for name, told in MAILS.items():
        (GOLDENS / f"{name}.txt").write_text(shown(told), encoding="ascii")
