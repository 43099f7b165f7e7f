import hashlib
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.run_tests import ROOT
from server.builds.models import Artifact
from server.builds.storage import FolderStore, put_artifact
from server.core import clock
from server.core.files import remove_tree
from server.sources.mirror import mirror
from tests.builders import build_build
from workers.upkeep import clean


def test_tree_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    remove_tree(folder)
    assert not folder.exists()


@pytest.mark.django_db
def test_upkeep_forgets_what_is_old_and_unfinished_and_nothing_else(state_dir: Path) -> None:
    image = build_build().artifacts.get()
    kept, fresh, cut_off, nameless = (FolderStore().place(name * 32) for name in ("aa", "bb", "cc", "dd"))
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


@pytest.mark.django_db
def test_files_of_builds_and_the_mirror_are_for_the_service_and_its_group(state_dir: Path) -> None:
    before = os.umask(0o000)
    try:
        # As an older version has left it.
        (state_dir / "artifacts").mkdir(mode=0o755)
        put_artifact(hashlib.sha256(b"kernel").hexdigest(), [b"kernel"])
        mirror()
    finally:
        os.umask(before)
    for path in (state_dir / "artifacts", state_dir / "mirror.git", *(state_dir / "artifacts").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & ~(0o750 if path.is_dir() else 0o640) == 0, path


@pytest.mark.parametrize(
    "entry",
    [
        "import server.asgi",
        "import workers; from celery.signals import celeryd_init as begun; begun.send(sender=None)",
        "import workers; from celery.signals import beat_init as begun; begun.send(sender=None)",
        "import runpy; runpy.run_path('manage.py')",
    ],
)
def test_what_a_process_of_the_service_writes_is_not_for_other_accounts(entry: str) -> None:
    script = f"import os, sys; os.umask(0); sys.argv = ['manage.py', 'check']\n{entry}\nprint(oct(os.umask(0)))"
    script = script.replace("run_path('manage.py')", "run_path('manage.py', run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "0o27"
