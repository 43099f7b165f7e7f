"""Hands nothing out, for development: pages, mails and series work, and no kernel is built or booted."""

from collections.abc import Mapping, Sequence

from server.lab.port import Dispatcher, DispatchError, Observed, Sighting, Sightings, Work


class NullDispatcher(Dispatcher):
    name = "null"
    about = "the null dispatcher: nothing is handed out"
    is_local = True
    # So that all that is wanted stays wanted.
    slots = 0

    def submit(self, work: Work) -> None:
        """What a database of another site brought along goes nowhere either."""
        raise DispatchError("null-dispatcher", f"{work.key}: the null dispatcher hands nothing out", permanent=False)

    def look(self, works: Sequence[Work]) -> Sightings:
        return Sightings({work.key: Sighting(Observed.ABSENT) for work in works})

    def cancel(self, work: Work) -> bool:  # noqa: ARG002 (nothing is anywhere)
        return True

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        return frozenset(hosts)
