"""Questions about machines: asked once, answered by a person, or by what the machine shows later."""

from server.core.errors import DomainError
from server.core.states import new_trace
from server.detection.models import Finding, MachineQuestion
from server.detection.noise.disagreements import disagreements_of
from server.lab.models import Machine
from server.sources.models import Branch

Kind = MachineQuestion.Kind
State = MachineQuestion.State
_LONGEST_TEXT = 2000


def open_question(
    key: str,
    kind: str,
    machine: Machine,
    detail: str,
    *,
    finding: Finding | None = None,
    branch: Branch | None = None,
    place: int | None = None,
    trace: str = "",
) -> MachineQuestion:
    """The question of this key, asked now if it was not before; one that was answered stays answered.

    `key` is what is asked and holds at most 200 characters; `detail` says for people what was seen.
    """
    fields = {"kind": kind, "machine": machine, "detail": detail, "finding": finding, "branch": branch, "place": place}
    question, created = MachineQuestion.objects.get_or_create(
        key=key, defaults={**fields, "state": State.OPEN, "reason": detail, "trace": trace or new_trace()}
    )
    return question.record_creation() if created else question


def answer_question(question: MachineQuestion, actor: str, text: str) -> None:
    """Store what a person found out. Raises DomainError without a name or a text, and if it was answered before."""
    text = " ".join(text.split())[:_LONGEST_TEXT]
    if not actor:
        raise DomainError("no-actor", "say who answers this")
    if not text:
        raise DomainError("no-reason", "say what was found: others will want to know")
    if question.state != State.OPEN or not question.advance(State.ANSWERED, text, actor=actor[:150]):
        raise DomainError("over", f"question {question.pk} was answered before: look again")


def settle_question(question: MachineQuestion, text: str) -> bool:
    """The service found the answer itself; False if somebody answered before."""
    return question.state == State.OPEN and question.advance(State.ANSWERED, text)


def ask_about_disagreements(finding: Finding) -> None:
    """One question for each microarchitecture whose machines contradict each other in this finding."""
    for found in disagreements_of(finding):
        key = f"disagreement:{finding.pk}:{found.machine.uarch_id}"
        open_question(key, Kind.DISAGREEMENT, found.machine, found.detail, finding=finding, trace=finding.trace)
