"""Whose kernel a boot ran decides whether it is believed about its machine."""

import pytest

from server.core.reasons import Because
from server.lab.hosts.probes import TRUSTED_BOOT
from server.lab.hosts.trouble import judge_builder
from server.lab.models import AttemptState, Boot, Builder, Session
from tests.builders import (
    EPOCH,
    because,
    build_attempt,
    build_build,
    build_builder,
    build_health_session,
    build_machine,
    build_revision,
    build_series,
    build_session,
    build_trial,
)
from tests.builders import build_trial_session as session_of

pytestmark = pytest.mark.django_db


def trusted(session: Session) -> set[str]:
    return set(Boot.objects.filter(TRUSTED_BOOT, session=session).values_list("arm", flat=True))


def test_base_is_believed_unless_it_is_the_series_without_its_last_patches() -> None:
    series = build_series()
    whole = build_trial(purpose="series", series=series)
    second_patch = build_trial(series.head, build_series().head, purpose="patch", series=series)
    first_patch = build_trial(series.base, series.head, purpose="patch", series=series)
    found = {trial: trusted(session_of(trial)) for trial in (whole, second_patch, first_patch, build_trial())}
    assert list(found.values()) == [{"base"}, set(), {"base"}, {"base"}]


def test_kernels_that_the_service_chose_itself_are_believed_on_both_sides() -> None:
    assert trusted(session_of(build_trial(purpose="noise"))) == {"base", "patched"}
    assert trusted(build_health_session(build_machine())) == {"base", "patched"}


def test_part_of_a_series_cannot_quarantine_a_builder() -> None:
    series = build_series()
    prefix, reverted = build_revision(foreign=True), build_revision(foreign=True)
    patch = series.patches.earliest("index")
    patch.revision = prefix
    patch.save()
    build_trial(series.head, reverted, purpose="revert", series=series)
    fine, sick = build_builder("fine"), build_builder("sick")
    Builder.objects.update(health_since=EPOCH)
    failed = [build_build(revision, state="wanted") for revision in (prefix, reverted, series.head)]
    for build in failed:
        build_attempt(build, builder=sick, agent="one").advance(
            AttemptState.DONE, Because.INFRASTRUCTURE("infrastructure: disk full")
        )
    build_attempt(build_build(), builder=fine, agent="two").advance(AttemptState.DONE, because("built"))
    assert not judge_builder(sick)
    build_attempt(build_build(series.base), builder=sick, agent="one").advance(
        AttemptState.DONE, Because.INFRASTRUCTURE("infrastructure: full")
    )
    assert judge_builder(sick), "one of them is nobody's patch"


def test_sessions_of_before_there_were_trials_are_believed_as_then() -> None:
    assert trusted(build_session()) == {"base"}
