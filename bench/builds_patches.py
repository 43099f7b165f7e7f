"""A series of five small patches on Debian's Linux 6.1, committed straight into a repository of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.processes import git

TREE = "debian"
BASE_REF = f"refs/tidemark/trees/{TREE}/linux-6.1.y"
_SERIES_REF = "refs/tidemark/series/1/"
_DATE = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
_ALLOCATE = "\tpage = alloc_zeroed_user_highpage_movable(vma, vmf->address);\n\tif (!page)\n\t\tgoto oom;\n"
_TWICE = "\tclear_user_highpage(page, vmf->address);\n"
_HELPER = """static inline void clear_again(struct page *page, unsigned long address)
{
	clear_user_highpage(page, address);
}

/* The GFP flags allowed during early boot */
"""


@dataclass(frozen=True)
class Edit:
    """In `file`, the first place that reads `old` shall read `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Patch:
    """`changes_code` is whether compilers make other instructions of it: comments and inlined helpers do not."""

    title: str
    edits: tuple[Edit, ...]
    changes_code: bool = True

    @property
    def is_one_file(self) -> bool:
        return len(self.edits) == 1 and self.edits[0].file.endswith(".c")


PATCHES = (
    Patch(
        "mm/memory.c, a comment only",
        (Edit("mm/memory.c", _ALLOCATE, "\t/* What a fault costs is mostly this. */\n" + _ALLOCATE),),
        changes_code=False,
    ),
    Patch("mm/memory.c, clear twice", (Edit("mm/memory.c", _ALLOCATE, _ALLOCATE + _TWICE),)),
    Patch("fs/pipe.c, four buffers", (Edit("fs/pipe.c", "DEF_BUFFERS 2\n", "DEF_BUFFERS 4\n"),)),
    Patch(
        "mm/mmap.c and kernel/fork.c",
        (
            Edit("mm/mmap.c", "\nint mmap_rnd_bits", "\nint tidemark_maps __read_mostly = 1;\nint mmap_rnd_bits"),
            Edit("kernel/fork.c", "#define MAX_THREADS FUTEX_TID_MASK", "#define MAX_THREADS (FUTEX_TID_MASK / 2)"),
        ),
    ),
    Patch(
        "mm/internal.h, which all of mm/ includes",
        (
            Edit("mm/internal.h", "/* The GFP flags allowed during early boot */\n", _HELPER),
            Edit("mm/memory.c", _TWICE, "\tclear_again(page, vmf->address);\n"),
        ),
        changes_code=False,
    ),
)


@dataclass(frozen=True)
class Revision:
    """One commit to build, and the ref by which the agent fetches it. `patch` is the last one in it; None: the base."""

    prefix: int
    commit: str
    ref: str
    patch: Patch | None


def series_of(source: Path, head: str, repository: Path, patches: Sequence[Patch] = PATCHES) -> list[Revision]:
    """The base and all prefixes of the series, in a bare repository that borrows the objects of `source`."""
    git(repository.parent, "init", "-q", "--bare", str(repository))
    (repository / "objects/info/alternates").write_text(f"{(source / 'objects').resolve()}\n")
    git(repository, "update-ref", BASE_REF, head)
    found = [Revision(0, head, BASE_REF, None)]
    for number, patch in enumerate(patches, start=1):
        commit = _commit(repository, found[-1].commit, patch)
        ref = f"{_SERIES_REF}{number}"
        git(repository, "update-ref", ref, commit)
        found.append(Revision(number, commit, ref, patch))
    return found


def _commit(repository: Path, parent: str, patch: Patch) -> str:
    index = {"GIT_INDEX_FILE": str(repository / "index.scratch"), **_DATE}
    git(repository, "read-tree", parent, env=index)
    for edit in patch.edits:
        text = git(repository, "show", f"{parent}:{edit.file}") + "\n"
        if edit.old not in text:
            raise ValueError(f"{edit.file} does not have {edit.old!r}")
        blob = git(repository, "hash-object", "-w", "--stdin", stdin=text.replace(edit.old, edit.new, 1).encode())
        git(repository, "update-index", "--cacheinfo", f"100644,{blob},{edit.file}", env=index)
    tree = git(repository, "write-tree", env=index)
    return git(repository, "commit-tree", tree, "-p", parent, "-m", patch.title, env=index)
