import hashlib
import threading

import pytest
from django.db import connection

from server.builds.models import Build, BuildState
from server.builds.records import ArtifactFile, BuildResult, record_build
from server.builds.storage import put_artifact
from server.builds.wanted import want_build
from server.core.errors import DomainError
from tests.builders import because, build_build, build_config, build_revision, build_toolchain

CONTENT = b"kernel"
SHA = hashlib.sha256(CONTENT).hexdigest()


def result(**changes: object) -> BuildResult:
    fields: dict[str, object] = {
        "outcome": "built", "reason": "", "seconds": 1.0, "build_id": "abcd", "compiler_version": "gcc 12",
        "log_tail": "", "artifacts": (ArtifactFile("image", SHA, len(CONTENT)),),
    }  # fmt: skip
    return BuildResult(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.django_db
def test_same_source_tree_is_built_once_whatever_its_commit() -> None:
    one = build_revision(tree_sha="a" * 40)
    other = build_revision(tree_sha="a" * 40)
    wanted = [
        want_build(revision=revision, config=build_config(), toolchain=build_toolchain(), trace="t")
        for revision in (one, other)
    ]
    assert wanted[0] == wanted[1]
    assert want_build(revision=one, config=build_config("full"), toolchain=build_toolchain(), trace="t") != wanted[0]


@pytest.mark.django_db
def test_build_given_up_for_our_reasons_is_tried_again_for_another_series_only() -> None:
    build = build_build(state=BuildState.RUNNING, trace="first")
    build.advance(BuildState.FAILED, because("power cut"), given_up=True)
    for trace, state in (("first", BuildState.FAILED), ("second", BuildState.WANTED)):
        want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace=trace)
        build.refresh_from_db()
        assert build.state == state
    build.advance(BuildState.FAILED, because("power cut"), given_up=True)
    for trace in ("first", "second"):
        want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace=trace)
    build.refresh_from_db()
    assert build.state == BuildState.FAILED, "two series do not wake it for each other for ever"


@pytest.mark.django_db
def test_kernel_that_does_not_compile_is_not_tried_again() -> None:
    build = build_build(state=BuildState.FAILED)
    want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace="second")
    build.refresh_from_db()
    assert build.state == BuildState.FAILED


@pytest.mark.django_db(transaction=True)
def test_two_processes_want_one_build() -> None:
    revision, config, toolchain = build_revision(), build_config(), build_toolchain()
    barrier = threading.Barrier(4)

    def want() -> None:
        barrier.wait()
        want_build(revision=revision, config=config, toolchain=toolchain, trace="t")
        connection.close()

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Build.objects.count() == 1


@pytest.mark.django_db
def test_artifact_that_was_not_uploaded_is_asked_for() -> None:
    build = build_build(state=BuildState.RUNNING)
    with pytest.raises(DomainError, match="not uploaded") as raised:
        record_build(build=build, result=result())
    assert raised.value.code == "artifact-missing"
    build.refresh_from_db()
    assert build.state == BuildState.RUNNING


@pytest.mark.django_db
def test_result_of_a_final_build_changes_nothing() -> None:
    build = build_build(state=BuildState.FAILED)
    put_artifact(SHA, [CONTENT])
    assert not record_build(build=build, result=result())
    build.refresh_from_db()
    assert (build.state, build.artifacts.count()) == (BuildState.FAILED, 0)


@pytest.mark.django_db
def test_kernel_without_image_or_build_id_is_not_built() -> None:
    build = build_build(state=BuildState.RUNNING)
    put_artifact(SHA, [CONTENT])
    for incomplete in (result(artifacts=()), result(build_id="")):
        with pytest.raises(DomainError, match="image and a build id"):
            record_build(build=build, result=incomplete)
