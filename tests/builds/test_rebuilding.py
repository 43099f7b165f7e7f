import pytest

from server.builds.expiry import expire_build
from server.builds.models import Artifact, Build, BuildState
from server.builds.records import record_build
from server.builds.wanted import want_build
from server.core.errors import DomainError
from server.core.models import Transition
from tests.builders import because, build_build
from tests.builds.files import IMAGE, result, sha_of, state_of, stored_build

pytestmark = pytest.mark.django_db


def want_again(build: Build) -> Build:
    return want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace="again")


def test_removed_kernel_is_woken_by_the_next_want_and_comes_back_as_itself() -> None:
    build = stored_build(build_id="abcd", text_hash="f" * 64)
    expire_build(build, because("old"))
    assert state_of(build) == BuildState.EXPIRED
    assert want_again(build) == build
    assert state_of(build) == BuildState.WANTED
    assert record_build(build=build, result=result(IMAGE))
    assert state_of(build) == BuildState.BUILT
    image = build.artifacts.get(kind=Artifact.Kind.IMAGE)
    assert (image.removed_at, image.sha256) == (None, sha_of(IMAGE))
    assert Build.objects.count() == 1
    assert build.reason == "built again: the same kernel"


def test_kernel_that_comes_out_as_another_one_gets_a_row_of_its_own_and_everybody_is_told() -> None:
    build = stored_build(build_id="abcd", text_hash="f" * 64, compiler_version="gcc 12")
    expire_build(build, because("old"))
    want_again(build)
    build.refresh_from_db()
    recipe = build.recipe
    another = result(b"other", build_id="ef01", text_hash="e" * 64, compiler_version="gcc 13")
    assert record_build(build=build, result=another)
    assert state_of(build) == BuildState.EXPIRED
    assert (build.build_id, build.text_hash, build.recipe) == ("abcd", "f" * 64, f"retired-{build.pk}")
    reason = Transition.objects.filter(subject="build", subject_id=build.pk).latest("id").reason
    assert "NOT REPRODUCED" in reason
    assert "build id ef01 instead of abcd, by gcc 13 instead of gcc 12; not the same text" in reason
    other = Build.objects.exclude(pk=build.pk).get()
    assert (other.state, other.build_id, other.recipe) == (BuildState.BUILT, "ef01", recipe)
    assert other.artifacts.get().sha256 == sha_of(b"other")
    assert want_again(build) == other, "who wants such a kernel gets the one that is there"


def test_kernel_that_does_not_build_again_keeps_what_was_measured_with_it() -> None:
    build = stored_build(build_id="abcd")
    expire_build(build, because("old"))
    want_again(build)
    record_build(build=build, result=result(outcome="failed", reason="mm/x.c:1: error", artifacts=()))
    assert state_of(build) == BuildState.FAILED
    assert build.build_id == "abcd"
    assert build.reason == "it was built before and does not build again: mm/x.c:1: error"


def test_older_agent_that_tells_no_text_hash_does_not_forget_it() -> None:
    build = stored_build(build_id="abcd", text_hash="f" * 64)
    expire_build(build, because("old"))
    want_again(build)
    record_build(build=build, result=result(IMAGE, text_hash=""))
    assert state_of(build) == BuildState.BUILT
    assert build.text_hash == "f" * 64


def test_late_result_brings_an_expired_kernel_back_if_it_is_the_same_one() -> None:
    build = stored_build(build_id="abcd")
    expire_build(build, because("old"))
    assert not record_build(build=build, result=result(outcome="failed", reason="no", artifacts=()))
    assert not record_build(build=build, result=result(IMAGE, build_id="ef01"))
    assert state_of(build) == BuildState.EXPIRED
    assert record_build(build=build, result=result(IMAGE))
    assert state_of(build) == BuildState.BUILT


def test_first_error_is_kept_and_cut_and_a_log_of_gigabytes_leaves_its_end() -> None:
    build = build_build(state=BuildState.RUNNING)
    log = "x" * 200_000 + "end"
    record_build(
        build=build,
        result=result(outcome="failed", reason="no", artifacts=(), first_error="e" * 9000, log_tail=log),
    )
    build.refresh_from_db()
    assert (len(build.first_error), len(build.log_tail), build.log_tail[-3:]) == (4000, 65_536, "end")


def test_two_files_of_one_kind_are_refused() -> None:
    build = build_build(state=BuildState.RUNNING)
    two = result(IMAGE).artifacts * 2
    with pytest.raises(DomainError, match="one file of each kind"):
        record_build(build=build, result=result(artifacts=two))
