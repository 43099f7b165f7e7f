"""Months of small fetches leave few packs; nothing is lost, and what killed processes left goes."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from server.core.programs.git import Repository
from server.sources import upkeep
from server.sources.mirror import bare_repository, mirror
from server.sources.models import Tree
from server.sources.trees.fetch import fetch_tree
from server.sources.upkeep import tend_all, tend_repository
from tests.sources.posting import Upstream, git

pytestmark = pytest.mark.django_db


def packs(repository: Repository) -> list[Path]:
    return list((repository.git_dir / "objects/pack").glob("*.pack"))


def grown(folder: Path, rounds: int = 14) -> tuple[Repository, list[str]]:
    """A bare repository with a pack from each of many fetches, the last of which no ref holds any more."""
    upstream = Upstream.create(folder / "grown")
    repository = bare_repository(folder / "grown.git")
    shas = []
    for n in range(rounds):
        shas.append(upstream.commit({"file": f"{n}\n"}))
        stdin = upstream.git("rev-list", "--objects", "--no-object-names", "HEAD~1..HEAD" if n else "HEAD").encode()
        git(upstream.path, "pack-objects", "-q", str(repository.git_dir / "objects/pack/pack"), stdin=stdin + b"\n")
        repository.output("update-ref", "refs/tidemark/trees/x/master", shas[-1])
    repository.output("update-ref", "refs/tidemark/trees/x/master", shas[-2])
    return repository, shas


def aged(path: Path, hours: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(b"fetch-pack 1 on host" if path.suffix == ".keep" else b"")
    then = time.time() - hours * 3600
    os.utime(path, (then, then))
    return path


def test_many_packs_become_few_and_no_object_goes(tmp_path: Path) -> None:
    repository, shas = grown(tmp_path)
    assert len(packs(repository)) == 14
    assert tend_repository(repository) == ["packed objects", "wrote the commit graph"]
    assert len(packs(repository)) <= 3
    assert [repository.resolve(sha) for sha in shas] == shas
    assert (repository.git_dir / "objects/info/commit-graphs/commit-graph-chain").exists()


def test_second_time_nothing_is_done_and_nothing_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    repository, _ = grown(tmp_path)
    tend_repository(repository)
    capfd.readouterr()
    assert tend_repository(repository) == []
    assert capfd.readouterr() == ("", "")


def test_new_pack_without_new_commits_asks_for_the_graph_once(tmp_path: Path) -> None:
    repository, _ = grown(tmp_path, rounds=3)
    tend_repository(repository)
    aged(repository.git_dir / "objects/info/commit-graphs/commit-graph-chain", 2)
    aged(packs(repository)[0], 1)
    assert tend_repository(repository) == ["wrote the commit graph"]
    assert tend_repository(repository) == []


def test_reader_that_began_before_reads_on(tmp_path: Path) -> None:
    repository, shas = grown(tmp_path)
    with repository.objects() as reader:
        assert reader.read(shas[0])
        tend_repository(repository)
        assert all(reader.read(f"{sha}:file") for sha in shas)


def test_loose_objects_and_refs_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, shas = grown(tmp_path, rounds=3)
    tend_repository(repository)
    monkeypatch.setattr(upkeep, "_MANY_LOOSE_REFS", 3)
    lines = "".join(f"create refs/tidemark/old/{n} {shas[0]}\n" for n in range(5))
    repository.output("update-ref", "--stdin", stdin=lines.encode())
    assert tend_repository(repository) == ["packed refs"]
    assert repository.resolve("refs/tidemark/old/3") == shas[0]


def test_only_one_process_tends_at_a_time(tmp_path: Path) -> None:
    repository, _ = grown(tmp_path)
    with psycopg.connect(**connection.get_connection_params()) as other:
        name = f"sources.tend.{repository.git_dir}"
        other.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [name])
        assert tend_repository(repository) == []
        other.execute("SELECT pg_advisory_unlock_all()")
    assert tend_repository(repository)


def test_killed_repack_loses_nothing_and_is_made_up_for(tmp_path: Path) -> None:
    repository, shas = grown(tmp_path)
    for delay in (0.0, 0.002, 0.005):
        process = subprocess.Popen(
            ["git", f"--git-dir={repository.git_dir}", "repack", "--geometric=2", "-d", "--quiet"],
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert [repository.resolve(sha) for sha in shas] == shas
    tend_repository(repository)
    assert [repository.resolve(sha) for sha in shas] == shas
    assert repository.run("fsck", "--connectivity-only").code == 0


def test_litter_of_killed_processes_goes_when_it_is_old(tmp_path: Path) -> None:
    repository = bare_repository(tmp_path / "x.git")
    pack = repository.git_dir / "objects/pack"
    old = [
        *(aged(pack / name, 25) for name in ("tmp_pack_abc", "tmp_idx_abc", ".tmp-1-pack-a.pack", "pack-1.keep")),
        aged(repository.git_dir / "objects/17/tmp_obj_abc", 25),
        aged(repository.git_dir / "packed-refs.lock", 0.3),
        aged(repository.git_dir / "refs/tidemark/trees/x/master.lock", 0.3),
    ]
    young = [aged(pack / "tmp_pack_def", 1), aged(repository.git_dir / "refs/heads/x.lock", 0.1)]
    assert len(tend_repository(repository)) == len(old)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in young)


def test_stale_lock_of_a_ref_does_not_stop_a_tree_for_ever(fetched: Tree, upstream: Upstream) -> None:
    head = upstream.commit({"README": "more\n"})
    aged(mirror().git_dir / "refs/tidemark/trees/stable/master.lock", 0.3)
    fetch_tree(tree=fetched)
    assert "File exists" in fetched.last_error
    tend_all()
    fetch_tree(tree=fetched)
    assert fetched.last_error == ""
    assert mirror().resolve("refs/tidemark/trees/stable/master") == head


def test_all_repositories_and_scratch_folders_are_tended(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STATE_DIR = tmp_path
    mirror()
    bare_repository(tmp_path / "lists/linux-mm/0.git")
    seen = []
    monkeypatch.setattr(upkeep, "tend_repository", lambda repository, **_: seen.append(repository.git_dir))
    old, young = tmp_path / "scratch/series-1", tmp_path / "scratch/series-2"
    (old / "tree").mkdir(parents=True)
    young.mkdir()
    aged(old, 25)
    tend_all()
    assert seen == [tmp_path / "mirror.git", tmp_path / "lists/linux-mm/0.git"]
    assert (old.exists(), young.exists()) == (False, True)
