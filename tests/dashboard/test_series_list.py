import pytest

from server.dashboard.rows.figures import PER_PAGE
from server.sources.models import Series
from tests.builders import build_list, build_series
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


def test_list_without_series_says_so(reader: Reader) -> None:
    assert "No series here." in reader.read("/series/")
    assert "No series here with this filter." in reader.read("/series/?state=held")


def test_filters_keep_what_they_name(reader: Reader) -> None:
    build_series(subject="mm: One", state=Series.State.HELD)
    build_series(subject="mm: Two")
    build_series(build_list("linux-arch"), subject="arch: Three")
    assert _subjects(reader.read("/series/?state=held")) == {"mm: One"}
    assert _subjects(reader.read("/series/?list=linux-arch")) == {"arch: Three"}
    assert _subjects(reader.read("/series/?state=applied&list=linux-mm")) == {"mm: Two"}


@pytest.mark.parametrize("query", ["state=bogus", "list=%00", "page=banana", "page=-3", "page=99999999999999999999"])
def test_query_that_makes_no_sense_shows_the_list(reader: Reader, query: str) -> None:
    build_series(subject="mm: One")
    assert _subjects(reader.read(f"/series/?{query}")) == {"mm: One"}


def test_long_list_has_pages_that_keep_the_filter(reader: Reader) -> None:
    for _ in range(PER_PAGE + 1):
        build_series(state=Series.State.HELD)
    first = reader.read("/series/?state=held")
    assert "page 1 of 2" in first
    assert 'href="?state=held&amp;page=2"' in first
    second = reader.read("/series/?state=held&list=&page=2")
    assert second.count("<tr>") == 2
    assert 'rel="prev"' in second


def test_version_is_part_of_the_title_from_the_second_on(reader: Reader) -> None:
    build_series(subject="mm: One", version=3)
    assert ">v3 mm: One<" in reader.read("/series/")


def test_words_of_strangers_without_end_make_no_long_list(reader: Reader) -> None:
    for _ in range(PER_PAGE):
        words = [f"word{n}" for n in range(3000)]
        build_series(subject="s" * 8000, author_name="a" * 4000, tags=["w" * 200, *words], rfc=True)
    text = reader.read("/series/")
    row = text.split("<tbody>")[1].split("</tr>")[0]
    assert [row.count(f">{word}<") for word in ("RFC", "word7", "word8")] == [1, 1, 0]
    assert len(text) < PER_PAGE * 3000
    assert len(reader.read("/")) < PER_PAGE * 3000


def _subjects(text: str) -> set[str]:
    return {name for name in ("mm: One", "mm: Two", "arch: Three") if name in text}
