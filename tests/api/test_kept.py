from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import product

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from server.api import answers
from server.core.rows import kept
from server.core.rows.kept import Kept, KeptAnswers, data_version
from server.detection.models import Finding
from server.sources.models import Tree
from tests.builders import build_finding, build_series, build_tree

_PATH = "/api/v1/findings/"


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written: other tests write to other databases of the same server, which is one to its snapshots."""

    def version() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 'still'")
        return "still"

    monkeypatch.setattr(kept, "data_version", version)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ANSWERS", KeptAnswers())


def queries(client: Client, path: str, *, statuses: Collection[int] = (200, 304), **headers: str) -> int:
    with CaptureQueriesContext(connection) as asked:
        assert client.get(path, headers=headers).status_code in statuses
    return len(asked)


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_the_same_question_is_answered_from_what_is_kept(client: Client) -> None:
    build_finding(build_series())
    first = client.get(_PATH)
    again = client.get(_PATH)
    assert again.content == first.content
    assert {name: again.headers[name] for name in ("ETag", "Content-Type", "Vary", "Access-Control-Allow-Origin")} == {
        name: first.headers[name] for name in ("ETag", "Content-Type", "Vary", "Access-Control-Allow-Origin")
    }
    assert queries(client, _PATH) == 1


@pytest.mark.django_db(transaction=True)
def test_any_change_makes_it_anew(client: Client) -> None:
    finding = build_finding(build_series())
    assert client.get(_PATH).json()["results"][0]["kind"] == "regressed"
    Finding.objects.filter(pk=finding.pk).update(kind=Finding.Kind.IMPROVED)
    assert client.get(_PATH).json()["results"][0]["kind"] == "improved"


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_what_is_kept_is_not_sent_to_who_has_it(client: Client) -> None:
    build_finding(build_series())
    mark = client.get(_PATH).headers["ETag"]
    answer = client.get(_PATH, headers={"If-None-Match": mark})
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", mark)
    assert queries(client, _PATH, If_None_Match=mark) == 1


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_form_packing_and_host_are_part_of_the_question(client: Client) -> None:
    for _ in range(30):
        build_finding(build_series())
    plain = client.get(_PATH)
    packed = client.get(_PATH, headers={"Accept-Encoding": "br"})
    assert ("Content-Encoding" in plain.headers, packed.headers["Content-Encoding"]) == (False, "br")
    assert "Content-Encoding" not in client.get(_PATH).headers
    assert client.get(_PATH, headers={"Accept": "text/csv"}).headers["Content-Type"].startswith("text/csv")
    assert client.get(_PATH).headers["Content-Type"] == "application/json"
    other = client.get(f"{_PATH}?page_size=10", headers={"Host": "localhost"})
    assert "http://localhost/" in other.json()["next"]
    assert "http://testserver/" in client.get(f"{_PATH}?page_size=10").json()["next"]


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_addresses_that_only_look_alike_when_they_are_put_in_order_are_two_questions(client: Client) -> None:
    finding = build_finding(build_series(author_address="\u00e9@example.org"))
    other = "author=%C3%83%C2%A9@example.org"
    raw = "author=\u00e9@example.org".encode().decode("latin-1")
    told = [client.get(_PATH, QUERY_STRING=asked).json()["results"] for asked in (other, raw)]
    assert [[row["id"] for row in rows] for rows in told] == [[], [finding.pk]]


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_who_spells_a_question_otherwise_gets_links_in_his_own_spelling(client: Client) -> None:
    for _ in range(11):
        build_finding(build_series())
    spellings = ("page_size=10&kind=regressed", "kind=regressed&page_size=10", "kind=%72egressed&page_size=10")
    told = [client.get(_PATH, QUERY_STRING=asked).json() for asked in spellings]
    assert [row["results"] for row in told] == [told[0]["results"]] * 3
    for host in ("localhost", "LOCALHOST"):
        assert (
            client.get(f"{_PATH}?{spellings[0]}", headers={"Host": host}).json()["next"].startswith(f"http://{host}/")
        )


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_spellings_of_one_question_have_no_more_room_than_other_questions(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "ANSWERS", KeptAnswers(most=20_000))
    letters = [(letter, f"%{ord(letter):02x}") for letter in "regre"]
    asked = [f"{_PATH}?kind={''.join(word)}ssed" for word in product(*letters)]
    for path in asked:
        client.get(path)
    assert queries(client, asked[-1]) == 1 < queries(client, asked[0])


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_an_error_is_not_kept(client: Client) -> None:
    assert client.get("/api/v1/findings/1/").status_code == 404
    assert client.get(f"{_PATH}?kind=strange").status_code == 400
    assert queries(client, "/api/v1/findings/1/", statuses={404}) > 1


@pytest.mark.django_db
def test_nothing_is_kept_inside_a_transaction() -> None:
    assert data_version() == ""


@pytest.mark.django_db(transaction=True)
def test_a_version_ends_with_each_write() -> None:
    before = data_version()
    build_tree()
    after = data_version()
    assert after != before
    Tree.objects.all().delete()
    assert data_version() not in {before, after}


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_who_asks_the_same_meanwhile_waits_for_the_answer() -> None:
    some = KeptAnswers()
    found, version = some.find(("a",))
    assert (found, bool(version)) == (None, True)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(told_by, some) for _ in range(2)]
        assert not wait(waiting, timeout=0.3).done
        some.keep(("a",), Kept(version, b"told", {}))
        assert [one.result() for one in waiting] == [b"told", b"told"]


@pytest.mark.usefixtures("still")
@pytest.mark.django_db(transaction=True)
def test_where_nothing_came_of_it_the_next_one_tries() -> None:
    some = KeptAnswers()
    some.find(("a",))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(told_by, some)
        assert not wait([waiting], timeout=0.3).done
        some.leave(("a",))
        assert waiting.result() is None


def told_by(some: KeptAnswers) -> bytes | None:
    try:
        found, _ = some.find(("a",))
        return found.content if found is not None else None
    finally:
        connection.close()


class Fixed(KeptAnswers):
    """On data that does not change."""

    def has(self, name: str, version: str = "1") -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kept, "data_version", lambda: version)
            found, _ = self.find((name,))
            self.leave((name,))
        return found is not None


def answer(size: int, version: str = "1") -> Kept:
    return Kept(version, b"x" * size, {})


def test_what_was_not_asked_for_longest_goes_first() -> None:
    some = Fixed(most=10_000)
    for name in ("a", "b", "c"):
        some.keep((name,), answer(2_000))
    assert some.has("a")
    some.keep(("d",), answer(2_000))
    assert [name for name in "abcd" if some.has(name)] == ["a", "c", "d"]


def test_a_newer_answer_takes_the_place_of_the_older() -> None:
    some = Fixed(most=10_000)
    for version in range(20):
        some.keep(("a",), answer(2_000, str(version)))
    some.keep(("b",), answer(2_000, "19"))
    assert (some.has("a", "18"), some.has("a", "19"), some.has("b", "19")) == (False, True, True)


def test_one_that_would_take_all_the_room_is_not_kept() -> None:
    some = Fixed(most=10_000)
    some.keep(("small",), answer(100))
    some.keep(("large",), answer(20_000))
    assert (some.has("large"), some.has("small")) == (False, True)
