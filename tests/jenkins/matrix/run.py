"""One column of the matrix after the other."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.jenkins.matrix.cells import BUILD_STATES, SESSION_STATES, At, Cell, make_build, make_session
from tests.jenkins.matrix.faults import Fault
from tests.jenkins.matrix.lab import Lab, wait_until

# A loaded host may lose an attempt on its way to its state: then the next one comes there.
_ARRIVE_SECONDS = 60.0
_END_SECONDS = 60.0
_POLL_SECONDS = 0.3


@dataclass(frozen=True)
class Outcome:
    """One cell's end."""

    row: str
    fault: str
    ended: str
    right: bool
    story: str
    seconds: float


def run_column(
    lab: Lab,
    number: int,
    fault: Fault,
    *,
    sessions: Sequence[At] = SESSION_STATES,
    builds: Sequence[At] = BUILD_STATES,
    wait: float = 0,
) -> list[Outcome]:
    """Bring a cell to each state, let the fault strike them all at once, and see how each ends."""
    for at in sessions:
        lab.add_machine(_machine(number, at))
    for at in builds:
        lab.add_builder(_builder(number, at))
    lab.define_jobs()
    second = lab.start_dispatcher("beside") if fault.beside else None
    early = [make_session(lab, at, _machine(number, at)) for at in sessions if at not in _LATE]
    early += [make_build(lab, at, _builder(number, at)) for at in builds if at not in _LATE]
    for cell in early:
        wait_until(cell.is_there, _ARRIVE_SECONDS, cell.story)
    late = _make_late(lab, number, sessions, builds)
    cells = [*early, *late]
    for cell in cells:
        cell.cancel()
    time.sleep(wait)
    fault.strike(lab, cells)
    for cell in cells:
        cell.release()
    began = time.monotonic()
    outcomes = _ends(cells, fault, began)
    if second is not None:
        lab.kill_dispatcher(second)
    lab.retire_hosts()
    return outcomes


_LATE = {At.WANTED, At.SUBMITTING}


def _machine(number: int, at: At) -> str:
    return f"m{number}-{at.name.lower()}"


def _builder(number: int, at: At) -> str:
    return f"b{number}-{at.name.lower()}"


def _make_late(lab: Lab, number: int, sessions: Sequence[At], builds: Sequence[At]) -> list[Cell]:
    """What the dispatching process is in the middle of when the fault comes, and what it has not seen yet."""
    late = []
    if At.SUBMITTING in sessions:
        host = _machine(number, At.SUBMITTING)
        lab.jenkins.answer_with("hang", path=f"POST /job/tidemark-session-{host}/", times=1)
        late.append(make_session(lab, At.SUBMITTING, host))
        wait_until(late[0].is_in_flight, _ARRIVE_SECONDS, late[0].story)
    if At.WANTED in sessions:
        late.append(make_session(lab, At.WANTED, _machine(number, At.WANTED)))
    if At.WANTED in builds:
        late.append(make_build(lab, At.WANTED, _builder(number, At.WANTED)))
    return late


def _ends(cells: Sequence[Cell], fault: Fault, began: float) -> list[Outcome]:
    outcomes: list[Outcome] = []
    left = list(cells)
    while left:
        late = time.monotonic() - began > _END_SECONDS
        for cell in list(left):
            if late or cell.is_over():
                left.remove(cell)
                ended = cell.ends_as()
                seconds = time.monotonic() - began
                right = ended == cell.should_end_as() and cell.is_over()
                outcomes.append(Outcome(cell.row, fault.name, ended, right, cell.story(), seconds))
        time.sleep(_POLL_SECONDS)
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """States as rows, faults as columns; each cell says how the work ended, with how many sets of results."""
    rows = sorted({each.row for each in outcomes}, key=[each.row for each in outcomes].index)
    rows.sort(key=lambda row: (row.split()[0] != "session", list(At).index(At(row.partition(" ")[2]))))
    faults = sorted({each.fault for each in outcomes}, key=[each.fault for each in outcomes].index)
    by_place = {(each.row, each.fault): each for each in outcomes}
    lines = [["state", *faults]]
    for row in rows:
        found = [by_place.get((row, fault)) for fault in faults]
        lines.append(
            [row, *("" if each is None else f"{each.ended} {'ok' if each.right else 'WRONG'}" for each in found)]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
