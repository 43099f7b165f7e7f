"""`manage.py series`: one JSON object for each series, with every fact."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from server.sources.models import Branch, HeadMove, MailingList, Message, Series
from server.sources.series.requests import all_series_json
from tests.builders import EPOCH, build_list, build_series
from tests.sources.posting import DIFF, deliver, mail


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    call_command("series", "--json", *options)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def printed_patch(index: int, subject: str, author: str, trailers: list[str]) -> dict[str, object]:
    return {
        "message_id": f"{index}@x",
        "index": index,
        "subject": subject,
        "author": author,
        "diffstat": {"files": 1, "insertions": 1, "deletions": 1},
        "trailers": trailers,
    }


def test_object_tells_all_of_a_series(linux_mm: MailingList, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"Why.\n\nbase-commit: {'a' * 40}\nchange-id: 20261101-two\n"
    answer = "Fine.\n\nReviewed-by: Ada Author <ada@example.org>\n"
    inner = DIFF.replace("Do this.", "From: Bea Builder <bea@example.org>\n\nDo this.")
    deliver(
        linux_mm,
        mail("[RFC PATCH 0/2 mm-unstable] mm: Both", text, message_id="0@x"),
        mail("[RFC PATCH 1/2 mm-unstable] mm: One", DIFF, message_id="1@x", parent="0@x"),
        mail("[RFC PATCH 2/2 mm-unstable] mm: Two", inner, message_id="2@x", parent="0@x"),
        mail("Re: [RFC PATCH 1/2 mm-unstable] mm: One", answer, message_id="r@x", parent="1@x"),
    )
    Message.objects.update(received_at=EPOCH)
    Series.objects.update(received_at=EPOCH)
    (found,) = printed(capsys)
    signed = "Signed-off-by: Ada Author <ada@example.org>"
    reviewed = "Reviewed-by: Ada Author <ada@example.org>"
    steps = found.pop("transitions")
    assert [step["state"] for step in steps] == ["incomplete", "held", "ready"]
    assert steps[-1]["reason"] == found.pop("reason")
    assert steps[-1]["reason_code"] == found.pop("reason_code") == "trusted"
    assert all(datetime.fromisoformat(step["at"]).tzinfo == UTC for step in steps)
    trust = found.pop("trust")
    assert trust["held"] is False
    assert [(s["address"], s["authentic"]) for s in trust["senders"]] == [("ada@example.org", True)]
    assert found == {
        "message_id": "0@x",
        "subject": "mm: Both",
        "version": 1,
        "minor": 0,
        "total": 2,
        "received": "2026-11-01T12:00:00Z",
        "complete": True,
        "author": "Ada Author <ada@example.org>",
        "submitted": "2026-11-01T12:00:00Z",
        "patches": [
            printed_patch(1, "mm: One", "Ada Author <ada@example.org>", [signed, reviewed]),
            printed_patch(2, "mm: Two", "Bea Builder <bea@example.org>", [signed]),
        ],
        "base_commit": "a" * 40,
        "change_id": "20261101-two",
        "prerequisites": [],
        "supersedes": [],
        "superseded_by": None,
        "state": "ready",
        "trailers": [signed, reviewed],
        "base": None,
        "head": None,
        "benchmarks": [],
        "list": linux_mm.name,
        "rfc": True,
        "resend": False,
        "tags": ["mm-unstable"],
    }


def test_incomplete_series_is_printed_and_says_so(linux_mm: MailingList, capsys: pytest.CaptureFixture[str]) -> None:
    deliver(linux_mm, mail("[PATCH 2/2] mm: Two", DIFF, message_id="2@x", parent="0@x"))
    (found,) = printed(capsys)
    assert (found["complete"], found["state"], found["message_id"]) == (False, "incomplete", "2@x")
    assert found["base_commit"] is found["change_id"] is None


def test_series_of_one_mail_is_found_by_any_of_its_mails(
    linux_mm: MailingList, capsys: pytest.CaptureFixture[str]
) -> None:
    deliver(linux_mm, mail("[PATCH] mm: One", DIFF, message_id="1@x"), mail("[PATCH] mm: Two", DIFF, message_id="2@x"))
    assert [s["message_id"] for s in printed(capsys, "--message-id", " <2@x>")] == ["2@x"]
    with pytest.raises(CommandError, match="no series holds <nothing@x>"):
        call_command("series", "--json", "--message-id", "<nothing@x>")
    call_command("series")
    assert "ready <1@x> mm: One (v1, 1 of 1 patches)" in capsys.readouterr().out


@pytest.mark.django_db
def test_subject_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    build_series(subject="mm: \x1b[2J\x9b31m red")
    call_command("series")
    assert "mm: [U+001B][2J[U+009B]31m red" in capsys.readouterr().out


def test_database_that_is_away_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_wanted: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("server.sources.management.commands.series.all_series_json", away)
    with pytest.raises(CommandError, match="the database cannot be asked: connection refused"):
        call_command("series")


@pytest.mark.django_db
def test_applied_series_names_its_base_and_head() -> None:
    series = build_series(base_how="base-commit of the cover letter", base_certain=True)
    assert series.base is not None
    assert series.head is not None
    branch = Branch.objects.create(tree=series.base.tree, name="mm-unstable", head=series.base)
    HeadMove.objects.create(branch=branch, kind=HeadMove.Kind.CREATED, after=series.base)
    [found] = all_series_json(Series.objects.filter(pk=series.pk))
    assert found["head"] == series.head.sha
    assert found["base"] == {
        "commit": series.base.sha,
        "tree": series.base.tree.name,
        "branch": "mm-unstable",
        "how": "base-commit of the cover letter",
        "certain": True,
    }


@pytest.mark.django_db
def test_many_series_cost_the_queries_of_one() -> None:
    mailing_list = build_list()

    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            assert len(list(all_series_json())) == Series.objects.count()
        return len(asked)

    build_series(mailing_list, state=Series.State.HELD)
    one = queries()
    for _ in range(9):
        build_series(mailing_list, state=Series.State.HELD)
    assert queries() == one
