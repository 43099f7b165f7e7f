import os
import threading
import time
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from pytest_django.fixtures import Settings

from server.builds.expiry import Removal, expire_artifacts, expire_build, mark_expired, remove_files, stored_bytes
from server.builds.models import Artifact, Build, BuildState
from server.builds.records import BuildResult, record_build
from server.builds.storage import ArtifactStore, FolderStore, has_artifact, put_artifact
from server.core import clock
from server.core.errors import DomainError
from tests.builders import because, build_build
from tests.builds.files import IMAGE, result, sha_of, state_of, stored_build

pytestmark = pytest.mark.django_db
GB = 1024**3


def age_files(days: float = 2) -> None:
    """Let the stored files look as old as those of a site that lives."""
    old = time.time() - days * 86_400
    for path in FolderStore().place("0" * 64).parent.parent.glob("[0-9a-f][0-9a-f]/*"):
        os.utime(path, (old, old))


def names(removals: list[Removal]) -> set[str]:
    return {removal.what for removal in removals}


def is_stored(content: bytes) -> bool:
    return has_artifact(sha_of(content), len(content))


def test_files_of_a_kernel_that_nobody_used_for_long_go_and_log_and_configuration_stay() -> None:
    files = {"image": IMAGE, "modules": b"m", "perf": b"p", "system-map": b"s", "config": b"c", "log": b"l"}
    old, young = stored_build(files, days=31), stored_build({"image": b"young"}, days=29)
    age_files()
    removals = expire_artifacts(())
    assert names(removals) == {str(old)}
    assert (state_of(old), state_of(young)) == (BuildState.EXPIRED, BuildState.BUILT)
    assert old.reason == "its files were removed: not used for 30 days"
    assert [is_stored(content) for content in files.values()] == [False] * 4 + [True] * 2
    assert set(old.artifacts.filter(removed_at=None).values_list("kind", flat=True)) == {"config", "log"}
    assert is_stored(b"young")


def test_what_is_in_use_or_pinned_stays_however_old_and_0_days_keep_all(settings: Settings) -> None:
    used, pinned, gone = stored_build({"image": b"1"}, days=99), stored_build({"image": b"2"}, days=99), None
    Build.objects.filter(pk=pinned.pk).update(pinned=True)
    age_files()
    assert expire_artifacts([used.pk]) == []
    used.refresh_from_db()
    assert used.used_at is not None
    assert clock.now() - used.used_at < timedelta(minutes=1), "being needed is being used"
    gone = stored_build({"image": b"3"}, days=99)
    settings.ARTIFACT_DAYS = 0
    assert expire_artifacts([]) == []
    assert state_of(gone) == BuildState.BUILT


def test_dry_run_says_what_would_go_and_touches_nothing() -> None:
    old = stored_build(days=40)
    age_files()
    out = StringIO()
    call_command("expire_artifacts", "--dry-run", stdout=out)
    assert f"{old}: not used for 30 days" in out.getvalue()
    assert "1 things would be removed" in out.getvalue()
    assert (state_of(old), is_stored(IMAGE)) == (BuildState.BUILT, True)
    call_command("expire_artifacts", stdout=out)
    assert "1 things were removed" in out.getvalue()
    assert not is_stored(IMAGE)


def test_file_that_two_builds_share_goes_with_the_last() -> None:
    one, other = stored_build(), stored_build()
    age_files()
    assert expire_build(one, because("old")) == 0
    assert is_stored(IMAGE)
    assert expire_build(other, because("old")) == len(IMAGE)
    assert not is_stored(IMAGE)


def test_room_is_made_by_those_used_longest_ago(settings: Settings) -> None:
    content = [bytes([number]) * 1000 for number in range(4)]
    builds = [stored_build({"image": data}, days=10 - number) for number, data in enumerate(content)]
    age_files()
    assert stored_bytes() == 4000
    settings.ARTIFACT_GB = 2500 / GB
    assert names(expire_artifacts([builds[0].pk])) == {str(builds[1]), str(builds[2])}
    assert [is_stored(data) for data in content] == [True, False, False, True]
    assert expire_artifacts([builds[0].pk]) == []


def test_old_logs_go_and_the_build_stays_what_it_is(settings: Settings) -> None:
    build = stored_build({"log": b"log"}, days=400, state=BuildState.FAILED)
    young = stored_build({"log": b"other"}, days=300, state=BuildState.FAILED)
    age_files()
    assert names(expire_artifacts(())) == {f"log of build {build.pk}"}
    assert (state_of(build), is_stored(b"log"), is_stored(b"other")) == (BuildState.FAILED, False, True)
    assert state_of(young) == BuildState.FAILED
    assert build.artifacts.get().removal == "older than 365 days"


def test_kill_between_rows_and_file_leaves_a_file_that_the_next_sweep_removes() -> None:
    build = stored_build({"image": IMAGE})
    mark_expired(build.pk, because("old"))
    age_files()
    assert is_stored(IMAGE)
    assert names(expire_artifacts(())) == {f"file {sha_of(IMAGE)[:12]}"}
    assert not is_stored(IMAGE)


def test_file_of_a_result_on_its_way_stays_and_one_that_nobody_named_for_days_goes() -> None:
    put_artifact(sha_of(b"old"), [b"old"])
    age_files()
    put_artifact(sha_of(b"new"), [b"new"])
    assert len(expire_artifacts(())) == 1
    assert (is_stored(b"old"), is_stored(b"new")) == (False, True)


def test_file_sent_again_just_before_its_removal_stays(store: ArtifactStore) -> None:
    build = stored_build({"image": IMAGE})
    gone = mark_expired(build.pk, because("old"))
    assert not put_artifact(sha_of(IMAGE), [IMAGE])
    assert remove_files(gone) == 0
    assert is_stored(IMAGE)


@pytest.mark.django_db(transaction=True)
def test_removal_and_a_result_with_the_same_file_never_leave_a_row_without_its_file() -> None:
    """Whoever comes first: the row is there with its file, or the agent is told to send it again."""
    for _ in range(8):
        old = stored_build({"image": IMAGE})
        new = build_build(state=BuildState.RUNNING)
        report = result(IMAGE)
        age_files()
        barrier = threading.Barrier(2)
        told: list[str] = []
        thread = threading.Thread(target=_record, args=(new, report, barrier, told))
        thread.start()
        barrier.wait()
        expire_build(old, because("old"))
        thread.join()
        live = Artifact.objects.filter(sha256=sha_of(IMAGE), removed_at=None)
        assert told == (["stored"] if live else ["artifact-missing"])
        assert is_stored(IMAGE) or not live
        Build.objects.all().delete()


def _record(build: Build, report: BuildResult, barrier: threading.Barrier, told: list[str]) -> None:
    barrier.wait()
    try:
        with transaction.atomic():
            record_build(build=build, result=report)
        told.append("stored")
    except DomainError as error:
        told.append(error.code)
    connection.close()
