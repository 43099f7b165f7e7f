"""What is built is the commit's tree byte by byte, whatever was built before it in the same checkout."""

import io
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidemark_agent.build.checkout import Checkout, largest_pack
from tidemark_agent.build.kernel import BuildOutcome, KernelBuilder
from tidemark_agent.errors import InfrastructureError, KilledError, StoppedError
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import BuildJob, read_assignment

from tests.agent.small_tree import MAKEFILE, REF
from tests.agent.test_run import MERGE, build_assignment
from tests.door import SECRET, door

SERIES_REF = "refs/tidemark/series/7/1"
# The source's own bytes get into the kernel.
SUMMED = MAKEFILE.replace("-x c", "-DSUM='\"'$$(sha256sum < $(CURDIR)/main.c | cut -c1-64)'\"' -x c")
NEW = "/* new $Id$ */\n"
MAIN = "/* $Id$ */\nconst char sum[] = SUM;\nvoid _start(void)\n{\n\tfor (;;);\n}\n"
PLAIN = {
    "Makefile": SUMMED,
    "main.c": MAIN,
    "mm/deep/x.sh": "#!/bin/sh\necho x\n",
    "scripts/kconfig/merge_config.sh": MERGE,
}
ATTRIBUTES = (
    "*.c text eol=crlf",
    "*.sh eol=crlf",
    "* text=auto eol=crlf",
    "main.c ident",
    "*.c filter=lfs diff=lfs merge=lfs -text",
    "*.c working-tree-encoding=UTF-16",
    "*.c export-subst",
    "[attr]all text eol=crlf\n* all",
)


class Tree:
    """A repository of a watched tree, and what series make of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.base = self.commit(PLAIN, REF)

    def git(self, *words: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(self.root), *words]
        self.root.mkdir(exist_ok=True)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, files: Mapping[str, str], ref: str) -> str:
        """A commit of `files` made without a work tree, so that no attribute changes what is stored."""
        index = {**os.environ, "GIT_INDEX_FILE": str(self.root / ".git/made")}
        (self.root / ".git/made").unlink(missing_ok=True)
        for name, text in files.items():
            sha = self._stored(text)
            mode = "100755" if name.endswith("merge_config.sh") else "100644"
            words = ["git", "-C", str(self.root), "update-index", "--add", "--cacheinfo", f"{mode},{sha},{name}"]
            subprocess.run(words, check=True, env=index)
        wrote = ["git", "-C", str(self.root), "write-tree"]
        tree = subprocess.run(wrote, check=True, env=index, capture_output=True, text=True).stdout.strip()
        made = self.git("commit-tree", "-m", "made", tree)
        self.git("update-ref", ref, made)
        return made

    def _stored(self, text: str) -> str:
        words = ["git", "-C", str(self.root), "hash-object", "-w", "--no-filters", "--stdin"]
        return subprocess.run(words, check=True, input=text.encode(), capture_output=True).stdout.decode().strip()

    def hostile(self, *attributes: str, where: str = "") -> str:
        """A series on the base with attributes for `where`, which leaves the base's own files alone."""
        lines = "".join(f"{line}\n" for line in attributes)
        return self.commit({**PLAIN, f"{where}.gitattributes": lines, "mm/new.c": NEW}, SERIES_REF)


class Site:
    """One builder with one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = io.StringIO()
        self.stop = threading.Event()
        self.source = root / "src"

    def move_to(self, tree: Tree, commit: str, ref: str = REF) -> None:
        self.root.mkdir(exist_ok=True)
        checkout = Checkout(source=self.source, scratch=self.root, stop=self.stop, log=Log(self.log))
        checkout.move_to(commit, git_url=str(tree.root), ref=ref)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.source.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {str(path.relative_to(self.source)): path.read_bytes() for path in found}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


def stored(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_attributes_of_a_series_change_no_file_of_the_next_base(tree: Tree, tmp_path: Path, attributes: str) -> None:
    site = Site(tmp_path / "site")
    site.move_to(tree, tree.hostile(attributes), SERIES_REF)
    assert (site.files()["main.c"], site.files()["mm/new.c"]) == (MAIN.encode(), NEW.encode())
    site.move_to(tree, tree.base)
    assert site.files() == stored(PLAIN)


_LINES = st.lists(st.sampled_from(ATTRIBUTES), min_size=1, max_size=3)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(posted=st.lists(st.tuples(_LINES, st.sampled_from(["", "mm/", "mm/deep/"])), min_size=1, max_size=4))
def test_base_is_the_same_after_any_series(
    tmp_path_factory: pytest.TempPathFactory, posted: list[tuple[list[str], str]]
) -> None:
    root = tmp_path_factory.mktemp("series")
    tree, site = Tree(root / "tree"), Site(root / "site")
    for attributes, where in posted:
        site.move_to(tree, tree.hostile(*attributes, where=where), SERIES_REF)
    site.move_to(tree, tree.base)
    assert site.files() == stored(PLAIN)
    assert "checkout-remade" not in site.log.getvalue()


def test_checkout_from_before_that_holds_other_bytes_is_made_anew(tree: Tree, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.move_to(tree, tree.base)
    # As an agent left it that obeyed attributes: the index says that all is well, and long has.
    git = ["git", "-C", str(site.source)]
    (site.source / ".git/info/attributes").write_text("*.c text eol=crlf\n")
    (site.source / "main.c").unlink()
    subprocess.run([*git, "checkout", "-q", "main.c"], check=True, stderr=subprocess.DEVNULL)
    os.utime(site.source / "main.c", (1_000_000_000, 1_000_000_000))
    subprocess.run([*git, "update-index", "-q", "--refresh"], check=True)
    assert site.files()["main.c"] != MAIN.encode()
    site.move_to(tree, tree.base)
    assert site.files() == stored(PLAIN)
    assert "checkout-remade" in site.log.getvalue()


def _same_times(path: Path, content: bytes) -> None:
    """Other content of the same length that git's index does not notice."""
    before = path.stat()
    path.write_bytes(content.ljust(before.st_size)[: before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("spoiled", ["content", "mode", "more", "link", "empty-folder"])
def test_whatever_differs_from_the_tree_is_found_before_a_build(tree: Tree, tmp_path: Path, spoiled: str) -> None:
    site = Site(tmp_path / "site")
    site.move_to(tree, tree.base)
    inside = site.source / "main.c"
    subprocess.run(["git", "-C", str(site.source), "config", "core.trustctime", "false"], check=True)
    (site.source / ".git/info/exclude").write_text("*.o\n")
    match spoiled:
        case "content":
            _same_times(inside, b"void evil(void);")
        case "mode":
            inside.chmod(0o755)
        case "more":
            (site.source / "mm/evil.o").write_bytes(b"evil")
        case "link":
            inside.rename(site.source / "mm/other.c")
            inside.symlink_to("mm/other.c")
        case "empty-folder":
            (site.source / "include/generated").mkdir(parents=True)
    site.move_to(tree, tree.base)
    assert site.files() == stored(PLAIN)
    assert not os.access(inside, os.X_OK)
    assert not inside.is_symlink()
    assert not (site.source / "include").exists()


def test_checkout_that_cannot_be_made_right_is_the_services_fault(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path / "site")
    monkeypatch.setattr("tidemark_agent.build.checkout.first_difference", lambda *_, **__: "main.c has other content")
    with pytest.raises(InfrastructureError, match=r"main\.c has other content"):
        site.move_to(tree, tree.base)
    assert not site.source.exists()


def test_git_that_is_ended_from_outside_leaves_the_checkout(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path / "site")
    site.move_to(tree, tree.base)
    (site.source / ".git/kept").touch()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nkill -TERM $$\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)
    with pytest.raises(KilledError):
        site.move_to(tree, tree.base)
    assert (site.source / ".git/kept").exists()


def test_git_that_fails_while_a_stop_is_on_its_way_leaves_the_checkout(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What git has started may have been ended before it: it then fails by itself."""
    site = Site(tmp_path / "site")
    site.move_to(tree, tree.base)
    (site.source / ".git/kept").touch()
    programs = tmp_path / "programs"
    programs.mkdir()
    real = shutil.which("git")
    (programs / "git").write_text(f'#!/bin/sh\ncase "$*" in *checkout*) exit 128;; esac\nexec {real} "$@"\n')
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    stop = threading.Timer(1.0, site.stop.set)
    stop.start()
    with pytest.raises(StoppedError):
        site.move_to(tree, tree.base)
    assert (site.source / ".git/kept").exists()


def test_trees_with_links_submodules_and_programs_are_proved_too(tree: Tree, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(mixed)]
    subprocess.run([*git, "init", "-q"], check=True)
    (mixed / "dir").mkdir()
    (mixed / "dir/übel \n name").write_bytes(b"\r\n\0")
    (mixed / "link").symlink_to("/nowhere/at all")
    (mixed / "run").write_text("x")
    (mixed / "run").chmod(0o755)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "update-index", "--add", "--cacheinfo", f"160000,{tree.base},module"], check=True)
    subprocess.run([*git, "commit", "-qm", "mixed"], check=True)
    sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    site = Site(tmp_path / "site")
    checkout = Checkout(source=site.source, scratch=tmp_path, stop=site.stop, log=Log(site.log))
    checkout.move_to(sha, git_url=str(mixed), ref="refs/heads/master")
    assert "checkout-remade" not in site.log.getvalue()
    assert (site.source / "link").readlink() == Path("/nowhere/at all")


def _built(tree: Tree, root: Path, commit: str, ref: str) -> BuildOutcome:
    job = read_assignment({**build_assignment("build-1-1", tree.root, commit), "ref": ref}).job
    assert isinstance(job, BuildJob)
    root.mkdir(exist_ok=True)
    log, stop = Log(io.StringIO()), threading.Event()
    builder = KernelBuilder(
        job=job, work=root / "work", ccache=root / "ccache", log=log, stop=stop, progress=lambda _: None
    )
    with builder.built() as outcome:
        return outcome


def test_kernel_of_the_base_is_the_same_on_a_fresh_builder_and_after_hostile_series(tree: Tree, tmp_path: Path) -> None:
    fresh = _built(tree, tmp_path / "fresh", tree.base, REF)
    assert fresh.outcome == "built", fresh.reason
    # What each line alone makes of the files is asked above; of two lines for the same the last one counts.
    for attributes in (ATTRIBUTES, ATTRIBUTES[::-1]):
        _built(tree, tmp_path / "used", tree.hostile(*attributes), SERIES_REF)
        after = _built(tree, tmp_path / "used", tree.base, REF)
        assert (after.build_id, after.text_hash) == (fresh.build_id, fresh.text_hash), attributes


def test_mirror_that_asks_who_comes_is_opened_by_the_builders_own_file(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree")
    tree.git("clone", "-q", "--mirror", str(tree.root), str(tmp_path / "web" / "mirror.git"))
    tree.git("--git-dir", str(tmp_path / "web" / "mirror.git"), "update-server-info")
    file = tmp_path / "git credentials"
    with door(tmp_path / "web") as told:
        for line, opened in ((f"http://robot:{SECRET}@elsewhere.example.org", False), (told.with_password, True)):
            file.write_text(f"{line}\n")
            checkout = Checkout(
                source=tmp_path / "src", scratch=tmp_path, stop=threading.Event(), log=Log(io.StringIO()),
                credentials=file,
            )  # fmt: skip
            if opened:
                checkout.move_to(tree.base, git_url=f"{told.url}/mirror.git", ref=REF)
            else:
                with pytest.raises(InfrastructureError, match="could not read Username"):
                    checkout.move_to(tree.base, git_url=f"{told.url}/mirror.git", ref=REF)
            assert file.read_text() == f"{line}\n"
    assert (tmp_path / "src/main.c").read_text() == MAIN
    assert SECRET not in "".join(told.seen)


def test_what_a_fetch_left_that_was_cut_off_is_gone_before_the_next_build(tree: Tree, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.move_to(tree, tree.base)
    objects = site.source / ".git" / "objects"
    (objects / "ab").mkdir(exist_ok=True)
    left = [objects / "pack" / "tmp_pack_Ab12", objects / "ab" / "tmp_obj_Cd34"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    site.move_to(tree, tree.base)
    assert [path for path in left if path.exists()] == []
    assert site.files() == stored(PLAIN)


@pytest.fixture
def served(tree: Tree, tmp_path: Path) -> Iterator[tuple[Tree, str]]:
    """A tree of three megabytes, and the address of a server that gives it away."""
    tree.commit({**PLAIN, "noise": os.urandom(3 << 20).hex()}, REF)
    tree.git("config", "uploadpack.allowAnySHA1InWant", "true")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["git", "daemon", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", "--export-all", str(tree.root)]
    daemon = subprocess.Popen([*words], start_new_session=True)
    try:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield tree, f"git://127.0.0.1:{port}{tree.root}"
    finally:
        os.killpg(daemon.pid, signal.SIGTERM)
        daemon.wait()


def test_fetch_brings_no_more_than_it_may_and_leaves_nothing(
    served: tuple[Tree, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server, or whoever is on the way to it, can send without end."""
    tree, url = served
    checkout = Checkout(
        source=tmp_path / "src", scratch=tmp_path, stop=threading.Event(), log=Log(io.StringIO())
    )  # fmt: skip
    commit = tree.git("rev-parse", REF)
    with monkeypatch.context() as patched:
        patched.setattr("tidemark_agent.build.checkout._LARGEST_PACK", 1 << 20)
        with pytest.raises(InfrastructureError):
            checkout.move_to(commit, git_url=url, ref=REF)
    left = [path for path in (tmp_path / "src/.git/objects").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in left) < 1 << 20
    assert [path for path in left if "tmp_" in path.name] == []
    checkout.move_to(commit, git_url=url, ref=REF)
    assert (tmp_path / "src/main.c").read_text() == MAIN


def test_nothing_is_fetched_onto_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=(2 << 30) + (8 << 20)))
    assert largest_pack(tmp_path) == 4 << 20
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2 << 30))
    with pytest.raises(InfrastructureError, match="less than 2 GiB of disk are left"):
        largest_pack(tmp_path)
