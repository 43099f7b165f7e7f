"""What a LAYOUT or FIX trial said is taken up by the finding that asked."""

import re

from server.detection.lifecycle.checking import conclude_checks
from server.detection.lifecycle.fix_answers import answer_fix
from server.detection.lifecycle.locking import held
from server.detection.models import Finding
from server.lab.models import Trial

_KEY = re.compile(r"finding:(\d{1,18}):(?:layout|fix:[0-9a-f]+(?::\d{1,9})?)")


def answer(trial: Trial) -> None:
    """Take up the answer of a trial of purpose LAYOUT or FIX, which is over. Harmless to repeat."""
    finding = finding_of(trial)
    if finding is None:
        return
    if trial.purpose == Trial.Purpose.LAYOUT:
        conclude_checks(finding)
    else:
        answer_fix(finding, trial)


def finding_of(trial: Trial) -> Finding | None:
    """The finding that asked, held; None where the trial's key names none."""
    named = _KEY.fullmatch(trial.key)
    if named is None or not Finding.objects.filter(pk=int(named[1])).exists():
        return None
    return held(int(named[1]))
