"""What the run made on the controller goes with it, and nothing else: only names with the run's own prefix."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from server.lab.dispatch.jenkins.apply_client import AdminClient
from server.lab.dispatch.jenkins.client import JenkinsError
from server.lab.dispatch.jenkins.client_check import checked

_LARGEST_JAR = 64 * 2**20


@dataclass
class HousekeepingClient(AdminClient):
    """An admin's client with the three calls of the run's own housekeeping, which were not recorded."""

    def fetch_agent(self, to: Path) -> None:
        path = "/jnlpJars/agent.jar"
        to.write_bytes(checked(self._get(path, largest=_LARGEST_JAR), path).content)

    def delete_job(self, job: str) -> None:
        self._delete(f"/job/{quote(job, safe='')}/doDelete", job)

    def delete_node(self, node: str) -> None:
        self._delete(f"/computer/{quote(node, safe='')}/doDelete", node)

    def _delete(self, path: str, name: str) -> None:
        if not self.prefix or not name.startswith(self.prefix):
            raise ValueError(f"{name} was not made by this run")
        self._post(path)


def clean_up(client: HousekeepingClient) -> tuple[list[str], list[str]]:
    """Delete all jobs and nodes with the run's prefix; returns what went, and what could not, with the reason."""
    gone: list[str] = []
    left: list[str] = []
    try:
        jobs = [job.name for job in client.jobs()]
        nodes = [node.name for node in client.nodes() if node.name.startswith(client.prefix)]
    except JenkinsError as error:
        return gone, [f"nothing could be looked for: {error.message}"]
    for what, names, delete in (("job", jobs, client.delete_job), ("node", nodes, client.delete_node)):
        for name in names:
            try:
                delete(name)
                gone.append(f"{what} {name}")
            except JenkinsError as error:
                left.append(f"{what} {name}: {error.message}")
    return gone, left
