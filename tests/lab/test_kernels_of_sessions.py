"""Which files of its two builds a machine is told to boot."""

import pytest
from tidemark_agent.wire.assignment import SessionJob, read_assignment

from server.builds.models import Artifact, Build
from server.core.errors import DomainError
from server.lab.attempts.arrivals import assignment
from server.lab.models import Attempt
from tests.builders import build_session


def attempt() -> Attempt:
    session = build_session()
    return Attempt(session=session, key=f"session-{session.pk}-1", trace=session.trace)


def add_modules(build: Build, sha256: str) -> None:
    Artifact.objects.create(build=build, kind=Artifact.Kind.MODULES, sha256=sha256, size=1000)


@pytest.mark.django_db
def test_machine_is_told_the_modules_of_a_kernel_that_has_some_and_null_for_one_without() -> None:
    given = attempt()
    assert given.session is not None
    add_modules(given.session.base_build, "a" * 64)
    document = assignment(given, [])
    assert document["session"]["kernels"]["base"]["modules"] == "a" * 64
    assert document["session"]["kernels"]["patched"]["modules"] is None
    job = read_assignment(document).job
    assert isinstance(job, SessionJob)
    assert [job.kernels[arm].modules for arm in ("base", "patched")] == ["a" * 64, ""]


@pytest.mark.django_db
def test_modules_are_no_kernel_to_boot() -> None:
    given = attempt()
    assert given.session is not None
    add_modules(given.session.base_build, "a" * 64)
    given.session.base_build.artifacts.filter(kind=Artifact.Kind.IMAGE).delete()
    with pytest.raises(DomainError, match="has no image"):
        assignment(given, [])
