"""What a command does: the services that pages and the API call, in the name of whoever wrote the mail."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR
from server.core.reasons import Because, Reason
from server.detection.branches.release import Why, invalidate
from server.detection.lifecycle.ledger import accept
from server.detection.lifecycle.remarks import mark_duplicate, promise_fix
from server.detection.lifecycle.retest import retest_finding
from server.detection.models import Finding
from server.lab.models import Machine, Microarchitecture, Trial
from server.reports.commands.grammar import Order
from server.reports.models import Delivery, Verb
from server.reports.outbox import opt_out
from server.results.models import Benchmark, Case
from server.sources.series.requests import holding

_MOST_TOLD = 20
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Asked:
    """Who asks, by which mail, about what. `actor` is what histories say of him."""

    sender: str
    message_id: str
    delivery: Delivery

    @property
    def actor(self) -> str:
        return f"{self.sender} (mail {self.message_id[:_LONGEST_NAME]})"[:LONGEST_ACTOR]

    @property
    def finding(self) -> Finding:
        found = self.delivery.report.finding
        if found is None:
            raise _not_done("the mail that you answer is about no finding")
        return found


@dataclass(frozen=True)
class Done:
    """`reason` says what was done; `trial` is what was asked for, whose answer is told when it is over."""

    reason: Reason
    trial: Trial | None = None


def obey(order: Order, asked: Asked) -> Done:
    """Do it, in the caller's transaction. DomainError, as the service has it, where that cannot be done."""
    return _ACTS[order.verb](order, asked)


def _not_done(why: str) -> DomainError:
    return DomainError("not-done", why)


def _measure(order: Order, asked: Asked) -> Done:
    machines, benchmarks = _machines(order.uarchs), _benchmarks(order.benchmarks)
    reason = f"asked for by mail <{asked.message_id}>"
    trial, new = retest_finding(
        asked.finding, actor=asked.actor, reason=reason, machines=machines, benchmarks=benchmarks
    )
    told = f"trial {trial.pk}" if new else f"trial {trial.pk}, which goes on already"
    return Done(Because.MEASURED_FOR_IT(told), trial)


def _machines(uarchs: Collection[str]) -> list[Machine]:
    """All machines of these microarchitectures that are in the lab."""
    known = {name.lower(): name for name in Microarchitecture.objects.order_by("name").values_list("name", flat=True)}
    if strange := [name for name in uarchs if name not in known]:
        raise _not_done(f"there is no microarchitecture {strange[0]} here; there are: {_some(known.values())}")
    names = [known[name] for name in uarchs]
    found = list(Machine.objects.filter(enabled=True, uarch__name__in=names).select_related("uarch").order_by("name"))
    if missing := sorted(set(names) - {machine.uarch.name for machine in found}):
        raise _not_done(f"no machine of {', '.join(missing)} is in service")
    return found


def _benchmarks(names: Collection[str]) -> list[str]:
    """Names of benchmarks, or of cases as benchmark/case."""
    for name in names:
        benchmark, _, case = name.partition("/")
        if not Benchmark.objects.filter(name=benchmark).exists():
            known = Benchmark.objects.order_by("name").values_list("name", flat=True)
            raise _not_done(f"there is no benchmark {benchmark} here; there are: {_some(known)}")
        if case and not Case.objects.filter(benchmark__name=benchmark, name__startswith=case).exists():
            cases = Case.objects.filter(benchmark__name=benchmark).order_by("name").values_list("name", flat=True)
            raise _not_done(f"{benchmark} has no case {case}; it has: {_some(cases)}")
    return list(names)


def _some(names: Iterable[str]) -> str:
    told = list(islice(names, _MOST_TOLD + 1))
    return ", ".join([*told[:_MOST_TOLD], *(["..."] if len(told) > _MOST_TOLD else [])]) or "none"


def _accept(order: Order, asked: Asked) -> Done:
    line = accept(asked.finding, actor=asked.actor, reason=order.text)
    return Done(Because.OBEYED(f"line {line.pk} of the ledger"))


def _invalidate(order: Order, asked: Asked) -> Done:
    acted = invalidate(asked.finding, actor=asked.actor, why=Why.WRONG, reason=order.text)
    return Done(Because.OBEYED("the finding is withdrawn" if acted else "the finding was withdrawn already"))


def _duplicate(order: Order, asked: Asked) -> Done:
    other = _finding_of(order.text, asked)
    acted = mark_duplicate(asked.finding, other, actor=asked.actor, reason=f"said by mail <{asked.message_id}>")
    told = f"the same as finding {other.pk}"
    return Done(Because.OBEYED(told if acted else f"{told}: it was so already"))


def _finding_of(message_id: str, asked: Asked) -> Finding:
    """The finding that a mail of ours tells of, or that of the newest series that holds a mail."""
    own = Delivery.objects.filter(message_id=message_id).exclude(report__finding=None).first()
    if own is not None and own.report.finding is not None:
        return own.report.finding
    ours = asked.finding
    held = Finding.objects.filter(series__in=holding(message_id).values("pk")).exclude(pk=ours.pk)
    found = held.order_by("-pk").first()
    if found is None:
        raise _not_done(f"no other finding is known by the mail <{message_id[:_LONGEST_NAME]}>")
    return found


def _fix(order: Order, asked: Asked) -> Done:
    acted = promise_fix(asked.finding, order.text, actor=asked.actor)
    return Done(Because.OBEYED(f"`{order.text}` is looked for" + ("" if acted else ": it was so already")))


def _stop(_order: Order, asked: Asked) -> Done:
    opt_out(address=asked.sender)
    return Done(Because.OBEYED("no more mails go to this address"))


_ACTS: Mapping[Verb, Callable[[Order, Asked], Done]] = {
    Verb.RETEST: _measure,
    Verb.TEST: _measure,
    Verb.ACCEPT: _accept,
    Verb.INVALID: _invalidate,
    Verb.DUP: _duplicate,
    Verb.FIX: _fix,
    Verb.STOP: _stop,
}
