"""The whole way of two versions of one series: from signed mails to queued work, which the second takes over."""

from pathlib import Path

import pytest

from server.builds.models import Build, BuildState
from server.lab.models import Session, SessionState
from server.sources.applying.application import apply_series
from server.sources.measure_rules import load_default_rules
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Series, SeriesState, Tree
from server.sources.series.formation import group_stale
from server.sources.trees.fetch import fetch_tree
from server.sources.trust.series_check import check_series, trust_sender
from tests.builders import build_list, build_machine
from tests.lab.planning import plan_series
from tests.sources.posting import Upstream, lines, small_tree, two_patches
from tests.sources.signing import Names, sign
from workers.lab import sweep

pytestmark = pytest.mark.django_db


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return small_tree(tmp_path / "upstream")


@pytest.fixture
def linux_mm(upstream: Upstream) -> MailingList:
    tree = Tree.objects.create(name="stable", url=str(upstream.path), branch_patterns=["master"])
    fetch_tree(tree=tree)
    return build_list(tree=tree)


def arrive(mailing_list: MailingList, mails: list[bytes], version: int) -> Series:
    """The series of these mails, as far as it comes: checked, and applied where it may run."""
    for mail in mails:
        store_message(mailing_list=mailing_list, raw=mail)
    group_stale()
    series = Series.objects.get(version=version)
    check_series(series=series, lookup=Names("example.org"))
    apply_series(series=series)
    series.refresh_from_db()
    return series


def second_version(upstream: Upstream) -> list[bytes]:
    upstream.git("checkout", "-q", "-b", "v2")
    upstream.commit({"mm/memory.c": lines(line7="clear the page once")}, "mm: Clear the page")
    upstream.commit({"mm/memory.c": lines(line7="clear the page once", line30="never")}, "mm: Clear it twice")
    upstream.git("checkout", "-q", "master")
    return upstream.mails("master..v2", "--cover-letter", "-v2", stamp=1_793_600_000)


def test_second_version_takes_over_from_the_first(upstream: Upstream, linux_mm: MailingList) -> None:
    load_default_rules()
    trust_sender(address="ada@example.org")
    machine = build_machine()
    mails = upstream.mails(two_patches(upstream), "--cover-letter")
    first = arrive(linux_mm, [sign(mail) for mail in mails], 1)
    assert first.state == SeriesState.APPLIED, first.reason
    assert {"mem-mmap", "will-it-scale/page_fault", "mm-basic"} <= set(first.benchmarks)
    plan_series(series_id=first.pk)
    assert first.base is not None
    Build.objects.filter(revision=first.base).update(state=BuildState.BUILT, build_id="ab")

    second = arrive(linux_mm, [sign(mail) for mail in second_version(upstream)], 2)
    first.refresh_from_db()
    assert (second.state, first.state, first.superseded_by) == (SeriesState.APPLIED, SeriesState.SUPERSEDED, second)
    plan_series(series_id=second.pk)
    sweep()
    states = dict(Build.objects.values_list("revision__sha", "state"))
    assert second.base is not None
    assert second.head is not None
    assert first.head is not None
    assert states == {
        second.base.sha: BuildState.BUILT,
        first.head.sha: BuildState.CANCELED,
        second.head.sha: BuildState.WANTED,
    }
    Build.objects.filter(revision=second.head).update(state=BuildState.BUILT, build_id="cd")
    plan_series(series_id=second.pk)
    session = Session.objects.get()
    assert (session.series, session.machine, session.state) == (second, machine, SessionState.PLANNED)
    assert session.benchmarks == second.benchmarks


def test_forged_second_version_stops_nothing(upstream: Upstream, linux_mm: MailingList) -> None:
    trust_sender(address="ada@example.org")
    build_machine()
    first = arrive(linux_mm, [sign(mail) for mail in upstream.mails(two_patches(upstream), "--cover-letter")], 1)
    plan_series(series_id=first.pk)
    forged = arrive(linux_mm, second_version(upstream), 2)
    sweep()
    first.refresh_from_db()
    assert (first.state, forged.state) == (SeriesState.APPLIED, SeriesState.HELD)
    assert "3 of 3 mails of ada@example.org not proved: not signed (DKIM)" in forged.reason
    assert set(Build.objects.values_list("state", flat=True)) == {BuildState.WANTED}
