"""The one error that the demo shows to its user: what went wrong and what to do, in one or two sentences."""


class DemoError(Exception):
    pass
