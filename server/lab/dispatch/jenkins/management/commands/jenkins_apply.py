"""Jobs and nodes on the site's Jenkins controller, as the lab needs them."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from server.core.middleware import for_terminal
from server.lab.dispatch.jenkins import http
from server.lab.dispatch.jenkins.configuration import AdminClient, Agreement, Amendment, Failure, look, mended
from server.lab.dispatch.jenkins.http import Wire
from server.lab.dispatch.jenkins.jobs import Wanted, wanted
from server.lab.dispatch.jenkins.values import JenkinsError

# The rounds of the service go first; this command has time.
_PATIENCE = 60.0


class Command(BaseCommand):
    help = (
        "Create and update the jobs and nodes that the lab needs, with the account of an admin (not the dispatcher's)."
        " Deletes nothing. Exit status 1: something differs (--check) or could not be done."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only compare, and print what differs")
        parser.add_argument("--url", default=settings.JENKINS_URL, help="default: TIDEMARK_JENKINS_URL")
        parser.add_argument("--user", required=True, help="an admin of the controller")
        parser.add_argument("--token-file", required=True, type=Path, help="file with that user's API token")
        parser.add_argument("--secrets", type=Path, metavar="FOLDER", help="write each node's agent secret there")

    def handle(self, *_args: Any, **options: Any) -> None:
        client = self._client(options)
        needed = wanted()
        try:
            trouble = sum([self._step(step, check=options["check"]) for step in look(client, needed)])
            trouble += self._problems(needed)
            if options["secrets"] and not options["check"]:
                trouble += self._secrets(client, needed, options["secrets"])
            self._control_host(client)
        except JenkinsError as error:
            raise CommandError(error.message) from error
        finally:
            client.close()
        if trouble:
            raise CommandError(f"{trouble} differ or could not be done")
        self.stdout.write("all jobs and nodes are as the lab needs them")

    def _client(self, options: dict[str, Any]) -> AdminClient:
        ca_file = Path(settings.JENKINS_CA_FILE) if settings.JENKINS_CA_FILE else None
        wire = Wire(
            url=(options["url"] or "").rstrip("/"),
            user=options["user"],
            token_file=options["token_file"].expanduser(),
            ca_file=ca_file,
            seconds=settings.JENKINS_TIMEOUT_SECONDS,
        )
        try:
            return AdminClient(wire, prefix=settings.JENKINS_PREFIX, turn=lambda: http.take_turn(_PATIENCE))
        except JenkinsError as error:
            raise CommandError(error.message) from error

    def _step(self, step: Amendment | Failure, *, check: bool) -> bool:
        """Do and print one step; returns whether something is still not as it should be."""
        open_still = isinstance(step, Amendment) and step.mend is not None
        if isinstance(step, Amendment) and open_still and not check:
            step, open_still = mended(step), False
            if isinstance(step, Amendment):
                self._line(step, "created" if step.finding is Agreement.MISSING else "updated")
                self._diff(step)
                return False
        if isinstance(step, Failure):
            self.stderr.write(for_terminal(f"{step.what} {step.name}: FAILED: {step.reason}"))
            return True
        self._line(step, step.finding.value)
        self._diff(step)
        return open_still

    def _line(self, step: Amendment, word: str) -> None:
        self.stdout.write(for_terminal(f"{step.what} {step.name}: {word}"))

    def _diff(self, step: Amendment) -> None:
        for line in step.diff.splitlines():
            self.stdout.write(f"    {for_terminal(line)}")

    def _problems(self, needed: Wanted) -> int:
        for problem in needed.problems:
            self.stderr.write(for_terminal(f"cannot be defined: {problem}"))
        return len(needed.problems)

    def _secrets(self, client: AdminClient, needed: Wanted, folder: Path) -> int:
        """Write the secrets, readable for the owner only; returns how many could not be read."""
        failed = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in needed.nodes:
            try:
                _write_secret(folder / name, client.node_secret(name))
            except JenkinsError as error:
                self.stderr.write(for_terminal(f"secret of node {name}: FAILED: {error.message}"))
                failed += 1
            else:
                self.stdout.write(f"secret of node {name}: written to {folder / name}")
        return failed

    def _control_host(self, client: AdminClient) -> None:
        """Power cycles wait for ever when no node has the label."""
        label = settings.LAB_CONTROL
        if label and not any(label in labels for labels in client.labels().values()):
            self.stderr.write(f"no node has the label {label}: power cycles will wait until one has")


def _write_secret(path: Path, secret: str) -> None:
    temporary = path.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(secret)
    temporary.replace(path)
