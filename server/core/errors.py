"""The one kind of error that services raise for what a caller can understand and act on."""


class DomainError(Exception):
    """Something a caller asked for cannot be done.

    `code` is a stable word for programs, `message` says what and where for people; `permanent` tells whether trying
    again later can help.
    """

    def __init__(self, code: str, message: str, *, permanent: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.permanent = permanent
