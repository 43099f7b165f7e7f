"""What beat sends and how often. Each entry is a sweep: it finds what a lost message left, and is harmless twice."""

from typing import Any

SWEEPS = (
    "sources.poll_trees",
    "sources.poll_lists",
    "sources.sweep",
    "builds.sweep",
    "lab.sweep",
    "detection.sweep",
    "reports.sweep",
)


def beat_schedule(seconds: float) -> dict[str, dict[str, Any]]:
    """Celery's beat_schedule with a look every `seconds`; a message nobody took expires before the next but two."""
    entries = {
        name: {"task": name, "schedule": seconds, "options": {"queue": name.split(".")[0], "expires": 3 * seconds}}
        for name in SWEEPS
    }
    entries["upkeep.clean"] = {"task": "upkeep.clean", "schedule": 3600.0, "options": {"queue": "upkeep"}}
    return entries
