"""The local stack: private PostgreSQL and Redis and the service's processes, kept alive by supervisor.

Everything lives below one directory (TIDEMARK_LOCAL, by default `.local`); a second stack beside the first needs only
another directory.
"""

from scripts.stack.control import Stack, local_directory, stack_down, stack_remove, stack_status, stack_up
from scripts.stack.places import Program, StackError

__all__ = [
    "Program",
    "Stack",
    "StackError",
    "local_directory",
    "stack_down",
    "stack_remove",
    "stack_status",
    "stack_up",
]
