"""What detection does by itself, sweep by sweep."""

from collections.abc import Callable

from server.detection.bisecting.tending import tend as tend_bisections
from server.detection.heads.tending import tend as tend_heads
from server.detection.lifecycle.tending import tend as tend_life
from server.detection.noise.tending import tend as tend_noise

# Each is harmless twice, does a bounded piece of work, and may fail alone.
PARTS: dict[str, Callable[[], object]] = {
    "noise": tend_noise,
    "heads": tend_heads,
    "bisections": tend_bisections,
    "life": tend_life,
}
