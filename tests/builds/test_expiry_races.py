"""What is wanted, pinned or used while files go."""

from datetime import timedelta

import pytest
from pytest_django.fixtures import Settings

from server.builds.expiry import expire_artifacts, expire_build
from server.builds.models import Build, BuildState
from server.core import clock
from tests.builders import because
from tests.builds.files import state_of, stored_build

pytestmark = pytest.mark.django_db


def test_kernel_that_is_wanted_while_a_sweep_runs_stays() -> None:
    old = stored_build(days=40)
    seen = Build.objects.get(pk=old.pk)
    Build.objects.filter(pk=old.pk).update(used_at=clock.now())
    assert expire_build(seen, because("not used for 30 days")) == 0
    assert state_of(old) == BuildState.BUILT
    Build.objects.filter(pk=old.pk).update(used_at=seen.used_at, pinned=True)
    assert expire_build(seen, because("not used for 30 days")) == 0
    assert state_of(old) == BuildState.BUILT


def test_lack_of_room_takes_nothing_that_was_used_within_the_hour(settings: Settings) -> None:
    fresh, old = stored_build({"image": b"a" * 100}), stored_build({"image": b"b" * 100}, days=1)
    Build.objects.filter(pk=fresh.pk).update(used_at=clock.now() - timedelta(minutes=55))
    settings.ARTIFACT_GB = 1 / 1024**3
    assert [removal.what for removal in expire_artifacts([])] == [str(old)]
    assert state_of(fresh) == BuildState.BUILT
