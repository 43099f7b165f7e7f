"""Each check must fail when its fact is missing, and only what depends on that fact may fail with it."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from django.core import mail as outbox
from django.test import override_settings
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from demo import checks
from demo.checks import measured_checks, page_checks
from demo.postings import OUTCOMES
from demo.sink import Store
from server.builds.models import Artifact, Build
from server.builds.storage import FolderStore
from server.core.models import Transition
from server.core.reasons import Because
from server.detection.models import Comparison, Finding, FindingVerdict
from server.lab.models import Boot, Session
from server.reports.models import Delivery, Report
from server.results.models import PackedValues
from server.sources.models import Patch, Series
from tests.builders import build_boot, build_revision
from tests.demo.finished import URL, Finished, fetch_by_client, finished_demo
from tests.kept import kept_rows, settle

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def kept(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Rows of one finished demo; below the folder its state and the mails that it sent."""
    folder = tmp_path_factory.mktemp("finished")
    sending = override_settings(VIRTUAL_VERDICTS=True, MAIL_ENABLED=True, MAIL_SINK="127.0.0.1:2525")
    with kept_rows(django_db_blocker, folder / "state"), sending:
        # Of whichever module was before.
        outbox.outbox.clear()
        finished_demo(folder / "mails")
        settle()
        yield folder


@pytest.fixture
def finished(kept: Path, tmp_path: Path, settings: Settings) -> Finished:
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}
    settings.STATE_DIR = tmp_path / "state"
    # Images are large, and no test writes into one.
    shutil.copytree(kept / "state", settings.STATE_DIR, copy_function=os.link)
    shutil.copytree(kept / "mails", tmp_path / "mails")
    return Finished(Series.objects.get(), Store(tmp_path / "mails"))


def patched_boot() -> Boot:
    return Boot.objects.filter(arm="patched", session__machine__name="vm-haswell").order_by("position")[0]


def patched_build() -> Build:
    return Session.objects.all()[0].patched_build


def one_cell(machine: str) -> "Comparison":
    return Comparison.objects.get(session__machine__name=machine, case__name="fault-4k")


def copy_image() -> None:
    base = Session.objects.all()[0].base_build.artifacts.get(kind="image")
    patched_build().artifacts.filter(kind="image").update(sha256=base.sha256)


def lose_session() -> None:
    FindingVerdict.objects.filter(uarch__name="zen1").update(comparison=None)
    Session.objects.filter(machine__name="vm-epyc").delete()


def lose_image() -> None:
    FolderStore().place(patched_build().artifacts.get(kind="image").sha256).unlink()


FACTS: dict[str, tuple[Callable[[], object], set[str]]] = {
    "a patch is no part of the series": (
        lambda: Patch.objects.filter(index=2).delete(),
        {"mails stored", "series applied"},
    ),
    "series was refused": (lambda: Series.objects.update(state="refused"), {"series applied", "history complete"}),
    "patch has no commit": (lambda: Patch.objects.filter(index=1).update(revision=None), {"series applied"}),
    "head is another commit": (
        lambda: Series.objects.update(head=build_revision()),
        {"series applied", "two kernels built"},
    ),
    "patched kernel was not built": (
        lambda: Build.objects.filter(pk=patched_build().pk).update(state="failed", build_id=""),
        {"two kernels built", "boots are proved"},
    ),
    "patched kernel has no image": (
        lambda: Artifact.objects.filter(build=patched_build()).delete(),
        {"two kernels built"},
    ),
    "both kernels are one image": (copy_image, {"two kernels built"}),
    "image is not stored": (lose_image, {"two kernels built"}),
    "history was not written": (lambda: Transition.objects.filter(subject="boot").delete(), {"history complete"}),
    "history is under other ids": (lambda: Transition.objects.update(trace="0" * 16), {"history complete"}),
    "a session is missing": (
        lose_session,
        {"sessions done", "every boot measured"},
    ),
    "a session failed": (
        lambda: Session.objects.filter(machine__name="vm-epyc").update(state="failed"),
        {"sessions done"},
    ),
    "a boot failed": (
        lambda: Boot.objects.filter(pk=patched_boot().pk).update(state="failed"),
        {"every boot measured"},
    ),
    "a boot ran another kernel": (
        lambda: Boot.objects.filter(pk=patched_boot().pk).update(build_id="0" * 40),
        {"boots are proved"},
    ),
    "patched boots ran the base kernel": (
        lambda: Boot.objects.filter(arm="patched").update(build_id=Session.objects.all()[0].base_build.build_id),
        {"boots are proved"},
    ),
    "a boot has too few values": (
        lambda: PackedValues.objects.filter(boot=patched_boot()).update(values=[1.0], ends=[1]),
        {"measurements stored"},
    ),
    "a boot has no measurement": (
        lambda: PackedValues.objects.filter(boot=patched_boot()).delete(),
        {"measurements stored"},
    ),
    "a finding says unchanged": (lambda: Finding.objects.update(kind="unchanged"), {"finding"}),
    "a finding does not say virtual": (lambda: Finding.objects.update(virtual=False), {"finding"}),
    "haswell is inconclusive": (
        lambda: FindingVerdict.objects.filter(uarch__name="haswell").update(verdict="inconclusive"),
        {"verdict for haswell"},
    ),
    "verdicts are turned": (
        lambda: FindingVerdict.objects.filter(verdict="regressed").update(verdict="improved"),
        {"verdict for haswell", "verdict for zen3"},
    ),
    "regression without its size": (
        lambda: FindingVerdict.objects.filter(uarch__name="zen3").update(comparison=None),
        {"verdict for zen3"},
    ),
    "unchanged without what would have been seen": (
        lambda: FindingVerdict.objects.filter(uarch__name="zen1").update(mde=None),
        {"verdict for zen1"},
    ),
    "wall clock contradicts": (
        lambda: Comparison.objects.filter(pk=one_cell("vm-haswell-wall").pk).update(verdict="improved"),
        {"wall clock agrees"},
    ),
    "mail is still in the outbox": (lambda: Delivery.objects.update(state="sending"), {"one mail in the thread"}),
}


def test_finished_demo_passes_every_check(finished: Finished) -> None:
    checks = finished.checks(page=True)
    assert [one for one in checks.values() if not one.ok] == []
    assert checks["verdict for haswell"].detail == "regressed (1.71x)"
    assert "would have seen" in checks["verdict for nehalem"].detail
    assert checks["boots are proved"].detail == "44 boot ids"


@pytest.mark.parametrize("fact", FACTS)
def test_check_fails_when(fact: str, finished: Finished) -> None:
    change, wrong = FACTS[fact]
    change()
    assert finished.wrong() == wrong


def test_boot_ids_may_not_repeat(finished: Finished) -> None:
    # The database refuses a second one, so the check is asked about a boot that is counted twice.
    boots = list(Boot.objects.select_related("session__base_build", "session__patched_build"))
    faults = list(checks._proof_faults([*boots, boots[0]], finished.outcome))
    assert faults == ["1 boot ids stand more than once"]
    assert measured_checks(finished.series, finished.outcome, finished.machines)[2].ok


def test_wall_clock_that_cannot_tell_contradicts_nothing(finished: Finished) -> None:
    Comparison.objects.filter(session__machine__name="vm-haswell-wall").update(verdict="inconclusive")
    assert finished.wrong() == set()


def test_cell_that_was_measured_must_be_compared(finished: Finished) -> None:
    FindingVerdict.objects.update(comparison=None)
    one_cell("vm-epyc").delete()
    assert "every cell compared" in finished.wrong()


def test_swapped_arms_turn_the_verdict(finished: Finished) -> None:
    finished.outcome = OUTCOMES["revert"]
    assert finished.wrong() == {"finding", "verdict for haswell", "verdict for zen3", "no mail, a draft waits"}


def test_improvement_must_wait_as_a_draft(finished: Finished) -> None:
    finished.outcome = replace(finished.outcome, mailed=False)
    assert finished.wrong() == {"no mail, a draft waits"}
    for path in finished.store.folder.iterdir():
        path.unlink()
    assert finished.wrong() == {"no mail, a draft waits"}, "a mail that was sent and lost is no draft"
    Report.objects.update(state="draft")
    assert finished.wrong() == set()


def test_series_without_effect_needs_one_image_for_both_kernels(finished: Finished) -> None:
    finished.outcome = replace(finished.outcome, same_image=True)
    assert {"two kernels built", "finding"} <= finished.wrong()


def test_no_mail_no_pass(finished: Finished) -> None:
    for path in finished.store.folder.iterdir():
        path.unlink()
    assert finished.wrong() == {"one mail in the thread"}


def test_second_mail_in_the_thread_is_one_too_many(finished: Finished) -> None:
    (mail,) = finished.store.mails()
    finished.store.keep(mail.text.replace("Message-ID: <", "Message-ID: <other.").encode(), "a@x", ["b@x"])
    assert finished.wrong() == {"one mail in the thread"}


def test_mail_handed_over_twice_is_one_mail(finished: Finished) -> None:
    (mail,) = finished.store.mails()
    finished.store.keep(mail.text.encode(), "a@x", ["b@x"])
    checks = finished.checks()
    assert checks["one mail in the thread"].ok
    assert "handed over 2 times" in checks["one mail in the thread"].detail


def test_mail_in_another_thread_is_no_answer(finished: Finished) -> None:
    (mail,) = finished.store.mails()
    log = finished.store.folder / "arrivals.log"
    log.write_text(log.read_text().replace(mail.in_reply_to, "<elsewhere@x>"))
    assert finished.wrong() == {"one mail in the thread"}


def test_page_must_show_the_headline(finished: Finished) -> None:
    finding = Finding.objects.get()
    shown = fetch_by_client(f"{URL}/series/{finished.series.pk}/")[1].replace(
        escape(finding.headline), "something else"
    )
    (found,) = page_checks(finished.series, finished.outcome, URL, lambda _url: (200, shown))
    assert not found.ok
    assert finding.headline in found.detail


def test_page_that_does_not_answer_is_told(finished: Finished) -> None:
    (found,) = page_checks(finished.series, finished.outcome, "http://127.0.0.1:1")
    assert not found.ok
    assert "refused" in found.detail
    (found,) = page_checks(finished.series, finished.outcome, "", lambda _url: (500, "oops"))
    assert "answers 500" in found.detail


def test_series_whose_kernels_run_the_same_code_is_finished_without_a_boot(finished: Finished) -> None:
    finished.outcome = OUTCOMES["null"]
    copy_image()
    FindingVerdict.objects.update(comparison=None, verdict="unchanged", mde=None, reason="same code")
    Finding.objects.update(kind="unchanged", identical=True)
    Comparison.objects.all().delete()
    Boot.objects.all().delete()
    Transition.objects.filter(subject="boot").delete()
    Session.objects.update(reason_code=Because.SAME_CODE)
    assert finished.wrong() == set()


def test_session_that_needed_more_boots_is_no_fault(finished: Finished) -> None:
    session = Session.objects.get(machine__name="vm-haswell")
    copies = list(session.boots.order_by("position"))
    for position, boot in enumerate(copies, len(copies)):
        build_boot(session, position, boot.arm, measured=True)
    assert "every boot measured" not in finished.wrong()
    Boot.objects.filter(session=session, position=len(copies)).update(state="failed")
    assert "every boot measured" in finished.wrong()
