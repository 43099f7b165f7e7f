"""What can go wrong in the agent, sorted by whose fault it is."""

import errno


class AgentError(Exception):
    """Base of the errors that the agent raises itself."""


class InfrastructureError(AgentError):
    """Something of ours is missing or broken: not the kernel's fault, worth another try elsewhere or later."""


class UnfitError(InfrastructureError):
    """The host lacks what all work of this kind needs: nothing was tried, and nothing else need be tried here."""


class KilledError(InfrastructureError):
    """A program of ours was ended by a signal from outside: it says nothing about what it worked on."""


class SlowError(InfrastructureError):
    """A program of ours did not end within its time: it may be broken, or the host too busy."""


class KernelError(AgentError):
    """The kernel's fault: it does not configure, compile or keep to its time."""


class StoppedError(AgentError):
    """The work was ended from outside: the server wants no more, or the agent was told to terminate."""


class RefusedError(AgentError):
    """The server understood and said no; asking again cannot help."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.reason = message


class UnauthorizedError(RefusedError):
    """The server does not take this token: it may be renewed, so what was asked is not wrong for good."""


class UnreachableError(AgentError):
    """The server gave no usable answer within the caller's patience."""


class FailingError(UnreachableError):
    """The server is there, but it breaks each time it is asked this."""


def file_trouble(error: OSError) -> str:
    """What an OSError about the agent's own files means, for people."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"no disk space left: {error}"
    return f"the agent's files failed: {error}"
