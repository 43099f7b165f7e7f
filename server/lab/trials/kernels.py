"""The kernels of a trial."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import structlog
from django.db.models import Q, QuerySet

from server.builds.blame import blame, blame_of_series
from server.builds.models import Build, BuildState
from server.builds.records import retire_build
from server.builds.wanted import recipe_of, want_build
from server.core.errors import DomainError
from server.core.programs.git import GitError
from server.lab.models import Machine, Session, SessionState, Trial, TrialState
from server.lab.trials.question import Station
from server.sources.mirror import mirror
from server.sources.models import Revision, Series, SeriesState

log = structlog.get_logger(__name__)
# Nothing of these is read while a kernel is built.
_NO_PART_OF_THE_BUILD = re.compile(
    r"^Documentation/.*\.(rst|txt|yaml|svg|dot)$|^LICENSES/|^tools/(testing|perf|mm)/|^(MAINTAINERS|CREDITS|README|COPYING)$"
)
# Compiled into vmlinux, and not run before it boots.
_KERNEL_CODE = re.compile(
    r"^(arch|block|crypto|drivers|fs|include|init|io_uring|ipc|kernel|lib|mm|net|security|sound|virt)/.*\.(c|h|S|rs)$"
)
# Folders whose code is run by the build, or becomes part of what surrounds vmlinux in the image.
_BESIDE_VMLINUX = re.compile(
    r"(^|/)(boot|tools|libstub|purgatory|vdso[^/]*)/|^arch/[^/]+/lib/|^lib/(decompress[^/]*$|(xz|zstd|lz4|zlib_inflate)/)"
    r"|\.lds\.S$"
    # Compiled to text, out of which headers are made that the image's own code reads as well.
    r"|(^|/)(bounds|[^/]*offsets[^/]*)\.c$"
)
_SHARED_HEADER = re.compile(r"^(arch/[^/]+/)?include/")
# Whoever takes a file from elsewhere for such code names it in an #include.
_PROGRAMS = (
    *("arch/*/boot/*", "arch/*/tools/*", "drivers/firmware/efi/libstub/*", "scripts/*", "usr/*", "certs/*"),
    *("tools/objtool/*", "tools/lib/*", "tools/bpf/resolve_btfids/*", "*/bounds.c", "*offsets*.c"),
)
# What turns files of the tree into code reads them as text, comments too: mkcapflags.sh those of cpufeatures.h.
_SCRIPTS = ("*Makefile*", "*Kbuild*", "*.sh", "*.awk", "*.pl", "*.py", "*.sed", "arch/*/tools/*", "scripts/*")
_NO_SCRIPTS = (":!tools/*", ":!samples/*", ":!Documentation/*")
_NAME_OF_HEADER = r"[A-Za-z0-9_.-]+\.h"
_MAKES_PROGRAMS = r"hostprogs|host-progs|hostlibs|userprogs|hostcc|HOSTCC"
_PLAIN_MODES = frozenset({"000000", "100644", "100755"})
# More is a sweep through the whole tree, which is not worth looking at file by file.
_MOST_FILES = 2000
_GIT_SECONDS = 60.0
# In the order of the compiler: a quote in a comment begins no string, and a comment in a string is none.
# What nothing ends is text up to the end of its line, a comment to that of the file: it is tried once, and compared.
_COMMENT = re.compile(
    rb"""//[^\n]*|/\*.*?\*/|(/\*.*|"(?:\\.|[^"\\\n])*+(?:["\\]|(?=\n)|\Z)|'(?:\\.|[^'\\\n])*+(?:['\\]|(?=\n)|\Z))""",
    re.DOTALL,
)
_SPLICE = re.compile(rb"\\[ \t\v\f]*\r?\n")
# Raw strings and trigraphs, in which comments cannot be told from text, and ends of lines that git does not know.
_ODD = re.compile(rb"""R"|\?\?/|\r(?!\n)""")
_FINAL = frozenset({BuildState.BUILT, BuildState.FAILED})
UNDER_WAY = frozenset({BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING})


@dataclass(frozen=True)
class Pair:
    """What one machine is to boot."""

    machine: Machine
    base: Build
    patched: Build

    @property
    def is_final(self) -> bool:
        return self.base.state in _FINAL and self.patched.state in _FINAL

    def is_same_code(self, *, hash_tells: bool) -> bool:
        """Whether both hold the same code and data, so that whatever differs is not the kernel."""
        same_kernel = hash_tells and self.has_one_hash
        return self.base.state == BuildState.BUILT and (self.base.pk == self.patched.pk or same_kernel)

    @property
    def has_one_hash(self) -> bool:
        return self.base.kernel_hash != "" and self.base.kernel_hash == self.patched.kernel_hash


@dataclass(frozen=True)
class Kernels:
    """The pairs of the machines for which kernels can be made, and in words why others have none."""

    pairs: tuple[Pair, ...]
    trouble: str = ""


def are_under_way(trial: Trial, places: Sequence[Station]) -> bool:
    """Whether all kernels are wanted already, and some of them not made yet: then there is nothing to do but wait.

    A few queries, since most trials that a sweep looks at wait, and are looked at again and again.
    """
    makers = {(place.config.pk, place.machine.toolchain_id): place for place in places}
    try:
        recipes = {recipe_of(place.config, place.machine.toolchain) for place in makers.values()}
    except DomainError:
        return False
    trees = {trial.base.tree_sha, trial.patched.tree_sha}
    there = Build.objects.filter(tree_sha__in=trees, recipe__in=recipes, state__in=[*_FINAL, *UNDER_WAY])
    states = {
        (tree_sha, config, toolchain): state
        for tree_sha, config, toolchain, state in there.values_list("tree_sha", "config", "toolchain", "state")
    }
    wanted = {(tree_sha, *maker) for tree_sha in trees for maker in makers}
    return wanted <= states.keys() and any(states[key] in UNDER_WAY for key in wanted)


def want_kernels(trial: Trial, places: Iterable[Station]) -> Kernels:
    """Want both kernels for each place; one build serves all places of one configuration."""
    wanted: dict[tuple[int, int], tuple[Build, Build] | str] = {}
    pairs, troubles = [], set()
    for place in places:
        key = (place.config.pk, place.machine.toolchain_id)
        if key not in wanted:
            wanted[key] = _want(trial, place)
        found = wanted[key]
        if isinstance(found, str):
            # A slip in one configuration is no reason to leave the other machines idle.
            log.warning("kernel_not_wanted", trace=trial.trace, machine=place.machine.name, reason=found)
            troubles.add(found)
        else:
            pairs.append(Pair(place.machine, *found))
    return Kernels(tuple(pairs), "; ".join(sorted(troubles)))


def _want(trial: Trial, place: Station) -> tuple[Build, Build] | str:
    def of(revision: Revision) -> Build:
        return want_build(revision=revision, config=place.config, toolchain=place.machine.toolchain, trace=trial.trace)

    try:
        # The base first: many trials share it, and it tells whether a failure is the patched revision's own.
        base = of(trial.base)
        return base, base if trial.base_id == trial.patched_id else of(trial.patched)
    except DomainError as error:
        return error.message


def does_hash_tell(trial: Trial) -> bool:
    """Whether two kernels of the trial with one hash boot as one.

    The hash is of vmlinux. What boots is an image made from it, by programs and scripts of the same tree that could put
    anything beside it. So mails are believed where all that they change is compiled into vmlinux and runs in no build,
    or is no part of a build; in doubt the kernels are measured like any others.
    """
    below = trial.base if trial.series is None else trial.series.base
    # Whose code lies below the series could do so as well.
    if below is None or below.foreign:
        return False
    try:
        # Within a series the kernel that is compared with has mails' code in it as well.
        mails = [revision.sha for revision in (trial.base, trial.patched) if revision.foreign]
        return all(_is_compiled_in(below.sha, sha) for sha in mails)
    except GitError as error:
        log.warning("hash_not_believed", trace=trial.trace, trial=trial.pk, reason=error.message)
        return False


def _is_compiled_in(base: str, patched: str) -> bool:
    """Whether the two differ in nothing but code of vmlinux and what no build reads."""
    raw = mirror().output("diff-tree", "-r", "-z", "--no-renames", base, patched, timeout=_GIT_SECONDS)
    fields = raw.decode("utf-8", "surrogateescape").split("\0")[:-1]
    modes = {mode for about in fields[0::2] for mode in about.removeprefix(":").split()[:2]}
    paths = [path for path in fields[1::2] if not _NO_PART_OF_THE_BUILD.match(path)]
    if modes - _PLAIN_MODES or len(paths) > _MOST_FILES:
        return False
    if any(_BESIDE_VMLINUX.search(path) or not _KERNEL_CODE.match(path) for path in paths):
        return False
    if not paths:
        return True
    shared = [path for path in paths if _SHARED_HEADER.match(path)]
    own = [path for path in paths if path not in shared]
    return (
        not _lies_beside_programs(base, paths)
        and _names_programs_include(base).isdisjoint(_names(own))
        and (not shared or _names_scripts_read(base).isdisjoint(_names(shared)))
        and _differ_in_comments(base, patched, shared)
    )


def _lies_beside_programs(commit: str, paths: Iterable[str]) -> bool:
    """Whether a folder of these, or one above it, makes programs that run on the builder: those are C files, too."""
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents} - {"."}
    made_by = [f"{folder}/{name}" for folder in sorted(folders) for name in ("Makefile", "Kbuild")]
    return _grep("-l", _MAKES_PROGRAMS, commit, made_by, "--literal-pathspecs") != ""


def _names_programs_include(commit: str) -> set[str]:
    """Names, without folders, of the files that programs of the build and the image's own code take in."""
    lines = _grep("-h", r"^[[:space:]]*#[[:space:]]*include", commit, _PROGRAMS)
    return set(re.findall(r"(?<![^/\"<>\s])([^/\"<>\s]+)[\">]", lines))


def _names_scripts_read(commit: str) -> set[str]:
    """Names, without folders, of the headers that Makefiles and scripts name."""
    return set(_grep("-ho", _NAME_OF_HEADER, commit, (*_SCRIPTS, *_NO_SCRIPTS)).split())


def _names(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[2] for path in paths}


def _grep(option: str, pattern: str, commit: str, paths: Iterable[str], *before: str) -> str:
    done = mirror().run(*before, "grep", "-I", "-E", option, "-e", pattern, commit, "--", *paths, timeout=_GIT_SECONDS)
    # It ends with 1 when it finds nothing.
    if done.code not in (0, 1):
        raise GitError("git-failed", f"git grep: {done.stderr.strip()}", stderr=done.stderr)
    return done.stdout.decode(errors="replace")


def _differ_in_comments(base: str, patched: str, headers: Iterable[str]) -> bool:
    """Whether these say the same in both commits but for comments.

    Programs of the build and the code that unpacks the image read such headers as well, through others, and a line
    that vmlinux has no use for may be for them.
    """
    with mirror().objects() as objects:
        for path in headers:
            # A line break in its name would ask for another object.
            found = [None if "\n" in path else objects.read(f"{commit}:{path}") for commit in (base, patched)]
            if None in found or len({_without_comments(file[1]) for file in found if file}) > 1:
                return False
    return True


def _without_comments(text: bytes) -> bytes:
    text = _SPLICE.sub(b"", text)
    if not _ODD.search(text):
        text = _COMMENT.sub(lambda found: found[1] or b" ", text)
    lines = (b" ".join(line.split()) for line in text.splitlines())
    return b"\n".join(line for line in lines if line)


def retire_unequal(pairs: Iterable[Pair]) -> bool:
    """Two kernels of two compilers would compare the compilers: the older one is built again first."""
    unequal = {
        (pair.base.pk, pair.patched.pk): min(pair.base, pair.patched, key=lambda build: build.pk)
        for pair in pairs
        if pair.base.state == pair.patched.state == BuildState.BUILT
        and pair.base.compiler_version != pair.patched.compiler_version
    }
    for (base, patched), older in unequal.items():
        retire_build(older, f"builds {base} and {patched} were made by different compilers")
    return bool(unequal)


def missing_kernel(trial: Trial, pair: Pair) -> str:
    """Whose fault it is that there is no pair of kernels, for people; empty where there is one."""
    if trial.purpose == Trial.Purpose.SERIES and trial.series_id is not None:
        return blame_of_series(pair.base, pair.patched, trial.series_id).sentence
    return blame(pair.base, pair.patched, who="the patched revision").sentence


_OPEN = (TrialState.WANTED, TrialState.MEASURING)


def awaited_by_trials() -> list[int]:
    """Ids of builds under way that an open trial, or a session that may boot, waits for."""
    trees = _trees(Trial.objects.filter(state__in=_OPEN))
    # A kernel whose files were removed is built again for its sessions.
    sessions = Session.objects.filter(state__in=Session.OPEN).exclude(trial__state=TrialState.CANCELED)
    pairs = sessions.filter(Q(base_build__state__in=UNDER_WAY) | Q(patched_build__state__in=UNDER_WAY))
    waited = {pk for pair in pairs.values_list("base_build", "patched_build") for pk in pair}
    under_way = Build.objects.filter(Q(tree_sha__in=trees) | Q(pk__in=waited), state__in=UNDER_WAY)
    return list(under_way.values_list("pk", flat=True))


def trees_of_canceled() -> set[str]:
    """Source trees under way that a canceled trial wanted: of those nobody may need any more."""
    under_way = list(Build.objects.filter(state__in=UNDER_WAY).order_by().values_list("tree_sha", flat=True).distinct())
    canceled = Trial.objects.filter(state=TrialState.CANCELED)
    # Two questions, each by an index: one with OR over both would read every trial that was ever canceled.
    return _trees(canceled.filter(base__tree_sha__in=under_way)) | _trees(
        canceled.filter(patched__tree_sha__in=under_way)
    )


def _trees(trials: QuerySet[Trial]) -> set[str]:
    pairs: Iterable[tuple[str, str]] = trials.order_by().values_list("base__tree_sha", "patched__tree_sha")
    return {tree_sha for pair in pairs for tree_sha in pair}


def builds_in_use() -> set[int]:
    """Ids of the builds of sessions that may boot on, of machines' health sessions, and of what waits to be planned.

    A session that is done and not concluded may be given more boots.
    """
    measuring = list(Trial.objects.filter(state=TrialState.MEASURING).values_list("pk", flat=True))
    undecided = Session.objects.filter(state=SessionState.DONE, concluded_at=None, trial__in=measuring)
    found: set[int] = set()
    for sessions in (Session.objects.filter(state__in=Session.OPEN), undecided):
        found |= {pk for pair in sessions.order_by().values_list("base_build", "patched_build") for pk in pair}
    chosen = Machine.objects.exclude(health_build=None).values_list("health_build", flat=True)
    found |= {pk for pk in chosen if pk is not None}
    waiting = Series.objects.filter(state=SeriesState.APPLIED, sessions__isnull=True)
    arms = Q(tree_sha__in=waiting.values("base__tree_sha")) | Q(tree_sha__in=waiting.values("head__tree_sha"))
    trials = Trial.objects.filter(state=TrialState.WANTED)
    arms |= Q(tree_sha__in=trials.values("base__tree_sha")) | Q(tree_sha__in=trials.values("patched__tree_sha"))
    return found | set(Build.objects.filter(arms).values_list("pk", flat=True))
