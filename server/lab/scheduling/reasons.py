"""Why work cannot go now, in words for people; empty where it can."""

from server.lab.hosts import Health, State
from server.lab.scheduling.snapshot import BuilderFacts, MachineFacts, Snapshot, WaitingBuild, WaitingSession

# Where a forced check may go: it is how a machine gets out of the latter two.
_CHECKED = frozenset({Health.GOOD, Health.UNKNOWN, Health.QUARANTINED})
_WORDS = {
    State.RESERVED: "is given to another session",
    State.WORKING: "works at another session",
    State.RETURNING: "is on its way back from a session",
    State.POWER_CYCLING: "is being switched off and on",
    State.OFFLINE: "is offline",
}


def machine_trouble(snapshot: Snapshot, session: WaitingSession) -> str:
    """Why the session's machine cannot take it now."""
    machine = snapshot.machines[session.machine]
    goes_there = session.forced and machine.health in _CHECKED
    goes_there |= session.tries and machine.held
    return _unfit(machine, goes_there=goes_there) or _unmet(machine, session) or _taken(machine)


def _unmet(machine: MachineFacts, session: WaitingSession) -> str:
    lacking = session.needs - machine.capabilities
    if lacking:
        return f"{machine.name} has no {', '.join(sorted(lacking))}"
    return "" if session.built else "a kernel of it is being built again"


def _taken(machine: MachineFacts) -> str:
    if machine.busy:
        return f"{machine.name} works at {machine.busy}"
    if machine.cycling:
        return f"{machine.name} is to be switched off and on"
    if machine.state != State.IDLE:
        return _told(f"{machine.name} {_WORDS[State(machine.state)]}", machine.state_reason)
    return ""


def _unfit(machine: MachineFacts, *, goes_there: bool) -> str:
    if not machine.enabled:
        return f"{machine.name} is disabled"
    if machine.health == Health.GOOD or goes_there:
        return ""
    return _told(f"{machine.name}: {Health(machine.health).label}", machine.health_reason)


def builder_trouble(builder: BuilderFacts) -> str:
    """Why the builder takes no build at all now."""
    if not builder.enabled:
        return f"{builder.name} is disabled"
    if builder.health != Health.GOOD:
        return _told(f"{builder.name}: {Health(builder.health).label}", builder.health_reason)
    if builder.state == State.OFFLINE:
        return _told(f"{builder.name} is offline", builder.state_reason)
    return ""


def build_trouble(snapshot: Snapshot, build: WaitingBuild) -> str:
    """Why no builder can take the build now: what is missing, else how those that could do are."""
    builders = sorted(snapshot.builders.values(), key=lambda one: one.name)
    if not builders:
        return "there is no builder"
    able = [one for one in builders if one.can(build)]
    if not able:
        if not any(one.makes(build.arch) for one in builders):
            return f"no builder compiles for {build.arch}"
        return f"no builder that compiles for {build.arch} has the toolchain {build.toolchain}"
    troubles = [builder_trouble(one) for one in able]
    if all(troubles):
        return "; ".join(troubles)
    fit = [one for one, trouble in zip(able, troubles, strict=True) if not trouble]
    if all(one.busy >= one.capacity for one in fit):
        return "; ".join(f"{one.name} makes {one.busy} of at most {one.capacity} builds" for one in fit)
    return ""


def _told(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what
