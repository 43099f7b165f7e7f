"""What nobody knows is an error that says what is known: a typo never answers with all rows."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.builders import build_build, build_case, build_config, build_machine, build_metric, build_series, build_uarch

pytestmark = pytest.mark.django_db


def refused(client: Client, path: str) -> dict[str, Any]:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 400, answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "invalid"
    errors: dict[str, Any] = answer.json()["errors"]
    return errors


def test_unknown_parameter_of_a_list_is_named_with_the_known_ones(client: Client) -> None:
    (told,) = refused(client, "findings/?regresed_on=zen3")["regresed_on"]
    known = told.partition("Known: ")[2].rstrip(".").split(", ")
    assert {"regressed_on", "since", "until", "effect", "page_size", "cursor", "format"} <= set(known)
    assert known == sorted(known)


@pytest.mark.parametrize(
    "path",
    ["trees/", "series/{series}/", "series/{series}/patches/", "series/{series}/history/", "queue/", "uarchs/"],
)
def test_unknown_parameter_is_an_error_of_every_address(client: Client, path: str) -> None:
    address = path.format(series=build_series().pk)
    assert client.get(f"/api/v1/{address}").status_code == 200
    assert list(refused(client, f"{address}?colour=red")) == ["colour"]
    assert client.head(f"/api/v1/{address}?colour=red").status_code == 400


def test_page_is_no_parameter_of_what_has_no_pages(client: Client) -> None:
    series = build_series()
    assert list(refused(client, f"series/{series.pk}/?page_size=2")) == ["page_size"]
    assert client.get(f"/api/v1/series/{series.pk}/patches/?page_size=2").status_code == 200


def test_description_may_be_asked_with_anything(client: Client) -> None:
    assert client.get("/api/v1/schema/?again").status_code == 200


def test_parameter_given_twice_is_no_guess(client: Client) -> None:
    assert refused(client, "series/?state=held&state=ready") == {"state": ["Write it once."]}


@pytest.mark.parametrize(
    "path", ["findings/?regressed_on=", "series/?author=%20", "findings/?until=", "cases/?cursor="]
)
def test_parameter_without_a_value_is_no_question_for_everything(client: Client, path: str) -> None:
    """A script writes that whose variable is not set."""
    assert list(refused(client, path).values()) == [["Write a value, or leave it out."]]


@pytest.mark.parametrize("method", ["put", "delete", "trace"])
@pytest.mark.parametrize("form", ["json", "csv", "ndjson", "columns"])
def test_method_that_is_none_here_is_a_problem_in_every_form(client: Client, method: str, form: str) -> None:
    answer = getattr(client, method)(f"/api/v1/findings/?format={form}")
    assert (answer.status_code, answer.json()["code"]) == (405, "method-not-allowed")


def test_unknown_parameters_are_told_up_to_a_number(client: Client) -> None:
    many = "&".join(f"{'x' * 100}{number}=1" for number in range(30))
    assert sum(map(len, refused(client, f"trees/?{many}"))) <= 400
    assert len(client.get(f"/api/v1/trees/?{many}").content) < 5000


def test_more_parameters_than_are_read_are_a_problem(client: Client) -> None:
    answer = client.get("/api/v1/trees/?" + "&".join(f"a{number}=1" for number in range(1500)))
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("size", ["0", "-1", "501", "ten", "1.5", "٣", "9" * 50, ""])
def test_page_size_out_of_bounds_says_the_bounds(client: Client, size: str) -> None:
    assert refused(client, f"findings/?page_size={size}") == {"page_size": ["Write a whole number from 1 to 500."]}


def test_page_size_at_its_bound_is_taken(client: Client) -> None:
    assert client.get("/api/v1/series/?page_size=100").status_code == 200
    assert refused(client, "series/?page_size=101") == {"page_size": ["Write a whole number from 1 to 100."]}


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("findings/?uarch=zen9", "haswell, zen3"),
        ("findings/?regressed_on=zen3&regressed_on=zen9", "haswell, zen3"),
        ("findings/?improved_on=zen9", "haswell, zen3"),
        ("findings/?machine=m9", "m1, m2"),
        ("findings/?benchmark=mm", "mm-basic"),
        ("findings/?case=fault", "fault-4k"),
        ("findings/?metric=space", "time"),
        ("findings/?tree=net", "stable"),
        ("findings/?branch=main", "master"),
        ("timelines/?machine=m9", "m1, m2"),
        ("timelines/?branch=main", "master"),
        ("machines/?uarch=zen9", "haswell, zen3"),
        ("machines/?capability=gpu", "cxl"),
        ("sessions/?machine=m9", "m1, m2"),
        ("builds/?config=big", "lean-x86-64"),
        ("builds/?arch=arm64", "x86_64"),
        ("attempts/?adapter=cron", "jenkins, local, null, pull"),
        ("queue/?tree=net", "stable"),
        ("findings/?parameter=colour:red", "size"),
        ("findings/?parameter=size:1g", "4k"),
    ],
)
def test_name_that_nothing_has_is_an_error_that_lists_those_there_are(client: Client, path: str, known: str) -> None:
    build_machine("m1", "zen3", capabilities=["cxl"])
    build_machine("m2", "haswell")
    build_case(parameters={"size": "4k"})
    build_metric()
    series = build_series()
    assert series.base is not None
    series.base.tree.branches.create(name="master")
    (told,) = refused(client, path).values()
    assert told[0].endswith(f"Known: {known}.")


def test_of_very_many_names_the_first_are_listed(client: Client) -> None:
    for number in range(60):
        build_uarch(f"u{number:02}")
    (told,) = refused(client, "machines/?uarch=zen9")["uarch"]
    assert "u49, ..." in told
    assert "u50" not in told


def test_percent_sign_in_a_name_is_a_percent_sign(client: Client) -> None:
    assert "%d" in refused(client, "machines/?uarch=%25d")["uarch"][0]


@pytest.mark.parametrize("path", ["series/?author=nobody@example.org", "findings/?author=nobody@example.org"])
def test_names_of_people_are_not_listed(client: Client, path: str) -> None:
    assert client.get(f"/api/v1/{path}").json()["results"] == []


def test_several_wrong_values_are_told_at_once(client: Client) -> None:
    assert sorted(refused(client, "findings/?uarch=zen9&kind=worse&effect=much&commit=abc")) == [
        "commit",
        "effect",
        "kind",
        "uarch",
    ]


@pytest.mark.parametrize("effect", ["NaN", "inf", "-0.1", "5%25"])
def test_effect_is_a_fraction(client: Client, effect: str) -> None:
    assert list(refused(client, f"findings/?effect={effect}")) == ["effect"]


def test_build_is_found_by_a_short_sha(client: Client) -> None:
    build = build_build(config=build_config())
    build_build()
    found = client.get(reverse("api-build-list"), {"sha": build.revision.sha.upper()}).json()["results"]
    assert [row["id"] for row in found] == [build.pk]
    build.revision.sha = "abcdef0" + "1" * 33
    build.revision.save()
    found = client.get(reverse("api-build-list"), {"sha": "abcdef0"}).json()["results"]
    assert [row["id"] for row in found] == [build.pk]
    assert list(refused(client, "builds/?sha=abcdef")) == ["sha"]
