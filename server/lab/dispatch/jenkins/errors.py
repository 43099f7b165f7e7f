"""What can be wrong with a request to the controller. None of these says anything about an attempt."""

from server.lab.dispatch.base import DispatchError


class JenkinsError(DispatchError):
    """Any of the following. `maybe_done` tells whether the request may have had its effect all the same."""

    def __init__(self, code: str, message: str, *, maybe_done: bool = False) -> None:
        super().__init__(code, message, permanent=False)
        self.maybe_done = maybe_done


class Unreachable(JenkinsError):  # noqa: N818 (answers are named by what is wrong)
    """No answer, not a whole one, or not in time."""

    def __init__(self, message: str, *, maybe_done: bool = True) -> None:
        super().__init__("jenkins-unreachable", message, maybe_done=maybe_done)


class Garbled(JenkinsError):  # noqa: N818 (as above)
    """An answer that no Jenkins gives: a proxy's page, half a JSON, a number that is a text."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-garbled", message, maybe_done=True)


class TokenRefused(JenkinsError):  # noqa: N818 (as above)
    """401 by Jenkins itself, or no token to send: a person has to renew it, unless it is over in a moment."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-token", message)


class Forbidden(JenkinsError):  # noqa: N818 (as above)
    """403; `permission` is the one that is missing, as Jenkins names it, or empty when it does not say."""

    def __init__(self, message: str, permission: str = "") -> None:
        super().__init__("jenkins-forbidden", message)
        self.permission = permission


class Missing(JenkinsError):  # noqa: N818 (as above)
    """404: not there, or this user may not know that it is."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-missing", message)


class Rejected(JenkinsError):  # noqa: N818 (as above)
    """Any other status; `status` is its number. Only 4xx says for sure that nothing was done."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__("jenkins-rejected", message, maybe_done=status >= 500)  # noqa: PLR2004 (HTTP's own limit)
        self.status = status


class Crowded(JenkinsError):  # noqa: N818 (as above)
    """The rate limit gave no turn in time: nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-crowded", message)
