"""One run from its site to its cleaning up, whatever happens in between."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from scripts.e2e_jenkins.agents import Agents
from scripts.e2e_jenkins.cleaning import HousekeepingClient, clean_up
from scripts.e2e_jenkins.disturbances import DISTURBANCES
from scripts.e2e_jenkins.forms import Forms
from scripts.e2e_jenkins.report import Report, StepError
from scripts.e2e_jenkins.running import Run
from scripts.e2e_jenkins.scenario import LAST_STEPS, first_steps, toys
from scripts.e2e_jenkins.site import RealKernel, make_site
from server.lab.dispatch.choosing import dispatcher
from server.lab.dispatch.jenkins.adapter import JenkinsDispatcher
from server.lab.dispatch.jenkins.client import wire_from_settings
from server.lab.dispatch.jenkins.client_wire import Wire


@dataclass(frozen=True)
class Wishes:
    """What the operator said. `jar`: where agent.jar is put; None where no agent needs it."""

    prefix: str
    service_url: str
    folder: Path
    admin: str
    admin_token_file: Path
    lease_seconds: float
    patience: float
    # How long the build runs under which the controller restarts.
    restart_seconds: float
    # More than git writes until a stop has gone through the controller.
    many_files: int
    restart_command: str = ""
    kill_command: str = ""
    kernel: RealKernel | None = None
    jar: Path | None = None


def play_whole(wishes: Wishes, agents: Agents, forms: Forms, report: Report) -> None:
    """Make the site, play all steps, and remove what is left on the controller, also after an exception."""
    trees = list(toys(wishes.lease_seconds, wishes.restart_seconds, wishes.many_files).values())
    site = make_site(wishes.prefix, wishes.folder, wishes.service_url, trees, wishes.kernel)
    there = wire_from_settings()
    wire = Wire(there.url, wishes.admin, wishes.admin_token_file, there.ca_file, there.seconds)
    admin = HousekeepingClient(wire, prefix=wishes.prefix, observe=forms.check)
    client = cast(JenkinsDispatcher, dispatcher()).client
    client.observe = forms.check
    commands = (wishes.restart_command, wishes.kill_command)
    run = Run(site, admin, agents, report, wishes.patience, *commands)
    try:
        with report.step("the controller answers") as step:
            quiet = admin.controller().quieting_down
            if wishes.jar is not None:
                admin.fetch_agent(wishes.jar)
            step.said = f"Jenkins {admin.head.version}, clock {admin.head.skew_seconds or 0:+.0f} s" + (
                ", is about to shut down" if quiet else ""
            )
        run.play((*first_steps(client), *DISTURBANCES, *LAST_STEPS))
    finally:
        with report.step("cleaned up") as step:
            stopped = agents.stop_all()
            gone, left = clean_up(admin)
            client.close()
            admin.close()
            step.said = f"removed {', '.join(gone) or 'nothing'}; stopped {len(stopped)} agents"
            if left:
                raise StepError(f"left behind: {'; '.join(left)}; {step.said}")
