"""Holding a bisection while it takes a step."""

from server.detection.models import Bisection


def lock(bisection_id: int) -> Bisection:
    """The bisection as it is now, with all that its steps need, held to the end of the transaction."""
    rows = Bisection.objects.select_for_update(of=("self",), no_key=True).select_related(
        "finding__series", "machine__uarch", "machine__config", "machine__toolchain", "target__case__benchmark"
    )
    return rows.select_related("target__metric", "target__session__trial__base", "target__session__trial__patched").get(
        pk=bisection_id
    )
