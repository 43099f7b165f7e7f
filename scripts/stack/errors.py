"""The one error of the stack: a sentence for the person at the terminal."""


class StackError(Exception):
    pass
