"""Forced health sessions: one trusted kernel on both sides tells whether a machine boots and measures as it should."""

from collections.abc import Iterable

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from server.builds.models import Build, BuildState
from server.builds.wanted import want_build
from server.core.reasons import Because
from server.core.states import new_trace
from server.core.tasks import enqueue
from server.lab.hosts.probes import facts_of_boots
from server.lab.hosts.state import Health, change_health, is_in_hands
from server.lab.models import Boot, BootState, Machine, Session, SessionState
from server.lab.work import boot_order, plan_boots
from server.sources.measure_rules import benchmarks_for
from server.sources.models import Branch, HeadMove, Revision, Tag

# Two boots of each side show that the machine comes back, again and again, from the kernel under test; more would only
# keep a machine longer from its work.
BOOTS_PER_SIDE = 2


def plan_health_session(machine: Machine, reason: str) -> Session | None:
    """The health session that this machine waits for, planned now if there is none; None while it has no kernel.

    A kernel that is not built yet is wanted; ask again when it is.
    """
    open_session = open_health_sessions().filter(machine=machine).first()
    if open_session is not None:
        return open_session
    kernel = health_kernel(machine)
    if kernel is None:
        return None
    with transaction.atomic():
        # Two processes at once: the second waits here and finds the session of the first.
        Machine.objects.select_for_update().get(pk=machine.pk)
        if open_health_sessions().filter(machine=machine).exists():
            return open_health_sessions().filter(machine=machine).first()
        return _plan(machine, kernel, reason)


def open_health_sessions() -> QuerySet[Session]:
    return Session.objects.filter(purpose=Session.Purpose.HEALTH, state__in=Session.OPEN)


def _plan(machine: Machine, kernel: Build, reason: str) -> Session:
    session = Session.objects.create(
        purpose=Session.Purpose.HEALTH,
        machine=machine,
        base_build=kernel,
        patched_build=kernel,
        benchmarks=benchmarks_for([]),
        state=SessionState.PLANNED,
        **Because.CHECK_ASKED(reason).columns(),
        trace=new_trace(),
    ).record_creation()
    plan_boots(session, boot_order(BOOTS_PER_SIDE))
    enqueue("lab.dispatch")
    return session


def health_kernel(machine: Machine) -> Build | None:
    """A built kernel that the machine can boot and no patch author had a hand in; None while there is none.

    The operator's choice first, then the newest that is built of a watched branch or tag; else one of the newest head
    is wanted.
    """
    chosen = machine.health_build
    if chosen is not None and chosen.state != BuildState.FAILED:
        return _ready(chosen)
    watched = Build.objects.filter(_watched("revision"), config=machine.config, toolchain=machine.toolchain)
    built = watched.filter(state=BuildState.BUILT).order_by("-revision__committed_at", "-id").first()
    if built is not None:
        return built
    failed = watched.filter(state=BuildState.FAILED, given_up=False).values("revision")
    heads = Revision.objects.filter(Exists(Branch.objects.filter(head=OuterRef("pk"), deleted_at=None)))
    newest = heads.exclude(pk__in=failed).order_by("-committed_at", "-id").first()
    if newest is None:
        return None
    return _ready(
        want_build(revision=newest, config=machine.config, toolchain=machine.toolchain, trace=_trace_of(machine))
    )


def _watched(path: str) -> Q:
    """Revisions that a watched tree showed by itself: those made by applying mails are never among them."""
    revision = OuterRef(path)
    shown = (
        Branch.objects.filter(head=revision),
        HeadMove.objects.filter(after=revision),
        Tag.objects.filter(revision=revision),
    )
    condition = Q()
    for rows in shown:
        condition |= Q(Exists(rows))
    return condition


def _ready(build: Build) -> Build | None:
    if build.state == BuildState.BUILT:
        return build
    wanted = want_build(revision=build.revision, config=build.config, toolchain=build.toolchain, trace=build.trace)
    return wanted if wanted.state == BuildState.BUILT else None


def _trace_of(machine: Machine) -> str:
    """One trace for each spell of a machine's health: a build that was given up for it is tried again in the next."""
    return f"{machine.pk % 16**6:06x}{int(machine.health_since.timestamp()) % 16**10:010x}"


def awaited_kernels() -> list[int]:
    """Ids of builds under way that a machine may be waiting for to be checked."""
    waiting = Machine.objects.filter(
        enabled=True,
        health__in=[Health.UNKNOWN, Health.QUARANTINED],
        config=OuterRef("config"),
        toolchain=OuterRef("toolchain"),
    )
    under_way = Build.objects.filter(state__in=[BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING])
    return list(under_way.filter(_watched("revision"), Exists(waiting)).values_list("pk", flat=True))


# --- judging --------------------------------------------------------------------------


def judge_health(session: Session) -> None:
    """Draw the conclusion from a health session that is over: good, or quarantined with the reason.

    Call it in the transaction that ends the session. One that was canceled says nothing, and a machine that is in
    somebody's hands by now stays there. So does one that is held in quarantine: that it boots was never in doubt.
    """
    if session.purpose != Session.Purpose.HEALTH or session.state not in {SessionState.DONE, SessionState.FAILED}:
        return
    # Held still, so that what a person decides meanwhile comes before or after the conclusion, and is seen by it.
    machine = Machine.objects.select_for_update(of=("self",)).select_related("uarch").get(pk=session.machine_id)
    if is_in_hands(machine):
        return
    boots = list(session.boots.order_by("position"))
    trouble = _trouble(session, boots, machine)
    name = f"health session {session.pk}"
    if trouble:
        change_health(machine, Health.QUARANTINED, f"{name}: {trouble}")
    elif not machine.is_held:
        change_health(machine, Health.GOOD, f"{name} passed: {len(boots)} boots measured")
    for field in ("health", "health_reason", "health_hold"):
        setattr(session.machine, field, getattr(machine, field))


def _trouble(session: Session, boots: Iterable[Boot], machine: Machine) -> str:
    if session.state == SessionState.FAILED:
        return session.reason or "it failed"
    facts = facts_of_boots(session.boots.all())
    for boot in boots:
        if boot.state != BootState.MEASURED:
            return f"boot {boot.position} gave no measurement: {boot.reason}"
        seen = facts.get(boot.pk, {}).get("uarch")
        if seen and seen != machine.uarch.name:
            return f"registered as {machine.uarch.name}, but its CPU is {seen}"
    return ""
