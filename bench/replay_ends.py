"""What must hold after any replay."""

from io import StringIO

from django.core.management import CommandError, call_command

from bench.replay_lines import Line
from bench.replay_player import Player

_MOST_DIFFERENCES = 4000


def failures(player: Player) -> Line:
    """Tasks that ended with an error: a worker lives on, and a sweep asks again, but none of them should."""
    found = player.worker.failures
    for text, count in found.most_common():
        print(f"FAIL: {count} x {text}")
    if found:
        print(player.worker.last_failure)
    return Line("tasks that failed", "0", str(found.total()), not found)


def recomputed() -> Line:
    """Whether everything follows once more from the stored samples."""
    output = StringIO()
    try:
        call_command("recompute", check=True, stdout=output)
    except CommandError as error:
        print(output.getvalue()[:_MOST_DIFFERENCES])
        return Line("computed again from stored samples", "no difference", str(error), right=False)
    return Line("computed again from stored samples", "no difference", output.getvalue().splitlines()[-1], right=True)
