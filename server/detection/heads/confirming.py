"""Fresh boots of the two revisions around a suspected change: the claim is theirs, not the timelines'."""

from collections.abc import Sequence

from django.conf import settings

from server.detection.models import ChangePoint, Finding
from server.lab.models import Machine, Trial
from server.lab.trials.asking import USUAL_LOOKS, Ask, want_trial
from server.lab.trials.choosing import machines_for

# A change of a tree that may be there is worth more than one more point of its timelines.
_PRIORITY = 1


def want_confirmation(finding: Finding, points: Sequence[ChangePoint]) -> Trial:
    """Ask for the trial of a candidate that these change points made, and note it in the row."""
    assert finding.before is not None
    assert finding.after is not None
    trial = want_trial(
        Ask(
            key=f"confirm:{finding.pk}",
            purpose=Trial.Purpose.CONFIRM,
            base=finding.before,
            patched=finding.after,
            looks=USUAL_LOOKS,
            trace=finding.trace,
            machines=tuple(_machines(finding, points)),
            benchmarks=tuple(sorted({f"{p.timeline.case.benchmark.name}/{p.timeline.case.name}" for p in points})),
            budget_seconds=settings.CONFIRM_HOURS * 3600,
            priority=_PRIORITY,
        )
    )
    Finding.objects.filter(pk=finding.pk).update(trial=trial)
    finding.trial = trial
    return trial


def asked_for(trial: Trial, points: Sequence[ChangePoint]) -> list[ChangePoint]:
    """The points whose case and machine the trial was to measure: others joined the finding after it was asked for.

    What it was to measure and could not is not asked again, or a machine that is away would be waited for for ever.
    """
    machines = set(trial.machines.values_list("pk", flat=True))
    entries = tuple(trial.benchmarks)
    return [
        point
        for point in points
        if point.timeline.machine_id in machines
        and f"{point.timeline.case.benchmark.name}/{point.timeline.case.name}".startswith(entries)
    ]


def _machines(finding: Finding, points: Sequence[ChangePoint]) -> list[Machine]:
    """The machines that moved, all others of their microarchitectures, and one of each other microarchitecture.

    A machine beside one that moved tells a change of the code from something of that machine; one of each other
    microarchitecture is enough for the vector.
    """
    chosen = {point.timeline.machine_id: point.timeline.machine for point in points}
    moved = {machine.uarch_id for machine in chosen.values()}
    others = set[int]()
    assert finding.branch is not None
    for machine in machines_for(finding.branch.tree).filter(virtual=finding.virtual).order_by("name"):
        if machine.uarch_id in moved or machine.uarch_id not in others:
            chosen.setdefault(machine.pk, machine)
            others.add(machine.uarch_id)
    return sorted(chosen.values(), key=lambda machine: machine.name)
