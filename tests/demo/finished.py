"""A demo that went through: every row, the mail in the sink, made by the service's own services where it has any."""

import dataclasses
from pathlib import Path

from django.core import mail as outbox
from django.test import Client, override_settings

from demo.checks import Check, kernel_checks, mail_checks, measured_checks, page_checks, verdict_checks
from demo.postings import OUTCOMES, Outcome
from demo.processes import ADDRESS
from demo.sink import Store
from demo.world import MachinePlan, planned_machines
from server.builds.models import Artifact
from server.builds.storage import FolderStore
from server.lab.models import Session
from server.reports.models import Delivery
from server.reports.outbox import send_delivery
from server.reports.writing import compose_report
from server.sources.models import Patch, Series
from tests.builders import build_case as build_benchmark_case
from tests.builders import (
    build_list,
    build_machine,
    build_measurements,
    build_metric,
    build_revision,
    build_series,
    build_session,
)
from tests.detection.measured import judge_series

_COSTS = {"fault-4k": (5762.0, 9871.0), "copy-4k": (1300.0, 1300.0)}
_PLAIN = 2168.0
URL = "http://testserver"


@dataclasses.dataclass
class Finished:
    series: Series
    store: Store
    outcome: Outcome = OUTCOMES["slow"]
    machines: tuple[MachinePlan, ...] = dataclasses.field(default_factory=planned_machines)
    mails: int = 3

    def checks(self, *, page: bool = False) -> dict[str, Check]:
        series = Series.objects.get(pk=self.series.pk)
        assert self.series.base is not None
        found = [
            *kernel_checks(series, self.outcome, base=self.series.base.sha, mails=self.mails),
            *measured_checks(series, self.outcome, self.machines),
            *verdict_checks(series, self.outcome, self.machines),
            *mail_checks(series, self.outcome, self.store.mails()),
        ]
        if page:
            found += page_checks(series, self.outcome, URL, fetch_by_client)
        names = [one.name for one in found]
        assert len(names) == len(set(names))
        return {one.name: one for one in found}

    def wrong(self, *, page: bool = False) -> set[str]:
        return {name for name, one in self.checks(page=page).items() if not one.ok}


def fetch_by_client(url: str) -> tuple[int, str]:
    answer = Client().get(url.removeprefix(URL))
    return answer.status_code, answer.content.decode()


def finished_demo(folder: Path) -> Finished:
    """Needs VIRTUAL_VERDICTS, MAIL_ENABLED and MAIL_SINK."""
    mailing_list = build_list("demo-list", moderated=False)
    base = build_revision(mailing_list.tree)
    first = build_revision(mailing_list.tree, base)
    head = build_revision(mailing_list.tree, first)
    series = build_series(mailing_list, base=base, head=head, author_address=ADDRESS)
    for patch, revision in zip(Patch.objects.filter(series=series).order_by("index"), (first, head), strict=True):
        patch.revision = revision
        patch.save()
    for plan in planned_machines():
        _measured(series, plan)
    for artifact in Artifact.objects.filter(kind=Artifact.Kind.IMAGE):
        path = FolderStore().place(artifact.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(artifact.size)
    # As in the demo: nobody looks for the commit.
    with override_settings(BISECT_HOURS=0):
        finding = judge_series(series_id=series.pk)
    assert finding is not None
    assert compose_report(finding_id=finding.pk) is not None
    assert send_delivery(delivery_id=Delivery.objects.get().pk)
    store = Store(folder)
    for message in outbox.outbox:
        store.keep(message.message().as_bytes(), message.from_email, message.recipients())
    return Finished(series, store)


def _measured(series: Series, plan: MachinePlan) -> Session:
    machine = build_machine(plan.name, plan.uarch, virtual=True, clock=plan.clock, boots_per_side=plan.boots_per_side)
    session = build_session(series, machine, state=Session.State.DONE, boots_per_side=plan.boots_per_side)
    metric = build_metric(resolution=0.04)
    cases = {name: build_benchmark_case(name) for name in _COSTS}
    measured = []
    for boot in session.boots.all():
        for name, costs in _COSTS.items():
            cost = costs[boot.arm == "patched"] if plan.uarch in {"haswell", "zen3"} else _PLAIN
            if plan.clock == "wall":
                cost *= 1 + 0.002 * (boot.position % 3)
            measured.append((boot, cases[name], [2 * cost, *[cost] * 5]))
    build_measurements(session, measured, metric)
    return session
