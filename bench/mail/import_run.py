"""The process that bench.mail.memory watches: python -m bench.scratch_database bench.mail.import_run < MBOX."""

import json
import sys
import time

from django.core.management import call_command

from bench.processes import memory_mb
from server.sources.models import Message, Series, Thread


def main() -> None:
    """Import standard input, then say on standard output what came of it."""
    # As a file: what comes from a pipe is put into series by a worker.
    call_command("import_mail", "/dev/stdin", stdout=sys.stderr)
    found = {
        "peak_mb": memory_mb("self", "VmHWM"),
        "cpu_seconds": time.process_time(),
        "messages": Message.objects.count(),
        "series": Series.objects.count(),
        "stale": Thread.objects.filter(stale=True).count(),
    }
    print(json.dumps(found))
