"""A reason: a sentence for people, and a code that goes with it."""

import copy
import pickle

import pytest

from server.builds.models import Build, BuildState
from server.core.models import Transition
from server.core.reasons import NONE, Because
from tests.builders import build_build


def test_copies_of_a_reason_keep_its_code() -> None:
    reason = Because.GIT_FAILED("git failed 3 times")
    for other in (copy.copy(reason), copy.deepcopy(reason), pickle.loads(pickle.dumps(reason))):  # noqa: S301 (our own)
        assert (other, other.code) == ("git failed 3 times", "git-failed")


def test_reason_without_a_sentence_says_what_its_code_means() -> None:
    assert Because.KERNEL_MISSING() == "one of its kernels cannot be had"
    assert (NONE, NONE.code, NONE.columns()) == ("", "", {"reason": "", "reason_code": ""})


def test_same_code_in_other_words() -> None:
    other = Because.LOST("lease over").told("session-1-1 lost: lease over")
    assert other.columns() == {"reason": "session-1-1 lost: lease over", "reason_code": "lost"}


@pytest.mark.django_db
def test_row_and_its_history_have_the_code() -> None:
    build = build_build(state=BuildState.WANTED)
    assert build.advance(BuildState.CANCELED, Because.EDITED())
    assert build.note(Because.NOT_WANTED(str(Because.EDITED.label)))
    build = Build.objects.get(pk=build.pk)
    assert build.said.columns() == {"reason": Because.EDITED.label, "reason_code": "not-wanted"}
    lines = Transition.objects.filter(subject="build", subject_id=build.pk).order_by("id")
    assert list(lines.values_list("reason_code", flat=True))[-2:] == ["edited", "not-wanted"], "the code alone is news"
