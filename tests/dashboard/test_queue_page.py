"""The queue: what waits, in which order, and why."""

import pytest
from pytest_django.fixtures import Settings

from server.builds.models import Build
from server.lab.models import Session
from tests.builders import (
    build_build,
    build_builder,
    build_list,
    build_machine,
    build_power_cycle,
    build_revision,
    build_series,
    build_session,
    build_tree,
)
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


@pytest.fixture
def jenkins(settings: Settings) -> None:
    """The local dispatcher would have a builder of its own."""
    settings.DISPATCHER = "jenkins"


def words(text: str) -> str:
    return " ".join(text.split())


def test_empty_queue_says_that_nothing_waits(reader: Reader) -> None:
    assert "No work is planned." in words(reader.read("/queue/"))


@pytest.mark.usefixtures("jenkins")
def test_each_kind_of_work_has_its_name_its_place_and_its_reason(reader: Reader) -> None:
    machine = build_machine("bench-1", "zen3", health="quarantined", health_reason="3 boots lost")
    session = build_session(build_series(subject="mm: Measure me"), machine)
    build = build_build(build_revision(subject="Linux 7.3-rc4"), state=Build.State.WANTED)
    build_power_cycle(machine, reason="it hangs")
    text = words(reader.read("/queue/"))
    for fact in (
        '<span class="figure">3</span> waiting',
        f"session {session.pk}</a>",
        "mm: Measure me",
        "bench-1: quarantined: 3 boots lost",
        f"build {build.pk}</a>",
        "Linux 7.3-rc4",
        "there is no builder",
        "it hangs",
    ):
        assert fact in text


@pytest.mark.usefixtures("jenkins")
def test_builds_that_no_builder_can_make_say_what_is_missing(reader: Reader) -> None:
    build_builder(arches=["arm64"])
    build_build(state=Build.State.WANTED)
    assert "no builder compiles for x86_64" in reader.read("/queue/")


def test_queue_can_be_narrowed_to_a_tree(reader: Reader) -> None:
    for name in ("mm", "net"):
        mailing_list = build_list(f"list-{name}", tree=build_tree(name))
        build_session(build_series(mailing_list, subject=f"{name}: Wait"), build_machine(f"bench-{name}", "zen3"))
    text = words(reader.read("/queue/?tree=mm"))
    assert '<span class="figure">1</span> waiting' in text
    assert "mm: Wait" in text
    assert "net: Wait" not in text
    wrong = words(reader.read("/queue/?tree=no-such-tree"))
    assert '<span class="figure">2</span> waiting' in wrong
    assert "There is no tree “no-such-tree”; known: mm, net." in wrong
    assert "Nothing of this tree waits." in reader.read(f"/queue/?tree={build_tree('other').name}")


def test_long_queue_is_told_by_its_beginning(reader: Reader) -> None:
    sessions = build_session(build_series(), build_machine("bench-1", "zen3"))
    Session.objects.bulk_create(
        Session(
            purpose="health",
            machine=sessions.machine,
            base_build=sessions.base_build,
            patched_build=sessions.base_build,
            state=Session.State.PLANNED,
        )
        for _ in range(204)
    )
    text = words(reader.read("/queue/"))
    assert '<span class="figure">205</span> waiting' in text
    assert "The first 200 are shown; 5 more wait behind them." in text
