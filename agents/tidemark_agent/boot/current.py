"""The boot driver `current`: no reboot at all. What runs is measured, where it is what was wanted.

For authors of benchmarks and for single boots: all boots of such a session have one boot id, and the service stores
only the first of them.
"""

from tidemark_agent.boot.driver import KernelFiles


class CurrentDriver:
    """Does nothing, since nothing is to be done."""

    def check(self) -> None:
        """Always possible."""

    def arm(self, kernel: KernelFiles) -> None:
        """The running kernel is the one."""

    def reboot(self) -> None:
        """It runs already."""

    def disarm(self) -> None:
        """Nothing is armed."""

    def leave(self) -> None:
        """There is no other kernel to go to."""
