import os
import time
from pathlib import Path

import pytest

from server.builds.models import Artifact
from server.builds.storage import artifact_path
from server.core import clock
from tests.builders import build_build
from workers.upkeep import clean


@pytest.mark.django_db
def test_upkeep_forgets_what_is_old_and_unfinished_and_nothing_else(state_dir: Path) -> None:
    image = build_build().artifacts.get()
    kept, fresh, cut_off, nameless = (artifact_path(name * 32) for name in ("aa", "bb", "cc", "dd"))
    Artifact.objects.filter(pk=image.pk).update(sha256="aa" * 32, size=1, checked_at=clock.now())
    for path in (kept, fresh.parent / ".incoming-1", cut_off.parent / ".incoming-2", nameless):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    log = state_dir / "agents" / "vm" / "build-1-1.log"
    log.parent.mkdir(parents=True)
    log.write_text("{}")
    two_months_ago = time.time() - 60 * 86_400
    for path in (kept, cut_off.parent / ".incoming-2", log, nameless):
        os.utime(path, (two_months_ago, two_months_ago))
    clean()
    left = {path.name for path in state_dir.rglob("*") if path.is_file()}
    assert left == {kept.name, ".incoming-1"}
