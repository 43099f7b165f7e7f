"""Whose fault it is that there is no pair of kernels to compare, and what the first error says about it."""

import re
from dataclasses import dataclass
from enum import StrEnum

from server.builds.models import Build, BuildState
from server.sources.models import Patch

# A source file as compilers name it: mm/memory.c:7:1: error. What lies outside of the tree is nobody's patch.
_PLACE = re.compile(r"(?:^|[\s(])(?:\./)?([A-Za-z0-9_][A-Za-z0-9_+.,/-]{0,300}\.(?:[chS]|rs|lds\.S|dtsi?)):\d+")
# Kconfig and make name their own files.
_CONFIG_PLACE = re.compile(
    r"(?:^|[\s(])((?:[A-Za-z0-9_][A-Za-z0-9_+.,-]*/){0,20}(?:Kconfig|Makefile|Kbuild)[\w.-]*):\d+"
)
_SHORT = 300
_MADE = {BuildState.BUILT, BuildState.EXPIRED}


class Blame(StrEnum):
    """Who has to mend it."""

    NONE = "none"
    BASE = "base"
    PATCH = "patch"
    BOTH = "both"
    OURS = "ours"


@dataclass(frozen=True)
class Judgement:
    """`sentence` is for people, empty where there is nothing to say; `failed` is the build whose error it is about."""

    blame: Blame
    sentence: str = ""
    failed: Build | None = None

    @property
    def file(self) -> str:
        """That of the first error, or empty. Looked for when it is asked for: who tells of many builds never does."""
        return error_file(self.failed) if self.failed is not None else ""


def blame(base: Build, patched: Build, *, who: str = "the series") -> Judgement:
    """Tell base breakage from the series' own, once both builds are final; before that, nobody is to blame.

    `who` is how the patched side is called.
    """
    failed = [build for build in (base, patched) if build.state == BuildState.FAILED]
    if not failed or any(build.state not in {*_MADE, BuildState.FAILED} for build in (base, patched)):
        return Judgement(Blame.NONE)
    ours = next((build for build in failed if build.given_up), None)
    if ours is not None:
        arm = "base" if ours is base else "patched"
        return Judgement(Blame.OURS, f"the {arm} kernel was not built, for reasons of this service: {_why(ours)}")
    if base.state != BuildState.FAILED:
        return Judgement(Blame.PATCH, f"{who} breaks the build: {_why(patched)}", patched)
    if patched.state != BuildState.FAILED:
        sentence = f"the base does not build ({_why(base)}); {who} builds, but there is nothing to compare it with"
        return Judgement(Blame.BASE, sentence, base)
    if base.reason == patched.reason or base is patched:
        sentence = f"the base does not build ({_why(base)}); {who} is not to blame"
        return Judgement(Blame.BASE, sentence, base)
    sentence = f"the base does not build ({_why(base)}), and neither does {who} ({_why(patched)})"
    return Judgement(Blame.BOTH, sentence, patched)


def blame_of_series(base: Build, patched: Build, series_id: int) -> Judgement:
    """As `blame`, and for a series that breaks the build which of its patches touches the file of the first error."""
    found = blame(base, patched)
    file = found.file if found.blame is Blame.PATCH else ""
    if not file:
        return found
    touching = Patch.objects.filter(series_id=series_id, message__paths__contains=[file]).order_by("index")
    indexes = [str(index) for index in touching.values_list("index", flat=True)]
    unknown = Patch.objects.filter(series_id=series_id, message__paths=[], message__files__gt=0)
    if not indexes:
        told = f"which patch touches {file} is not known" if unknown.exists() else f"no patch touches {file}"
    else:
        told = f"{file} is touched by patch{'es' if len(indexes) > 1 else ''} {', '.join(indexes)}"
    return Judgement(found.blame, f"{found.sentence} ({told})", found.failed)


def error_file(build: Build) -> str:
    """The source file, as the tree names it, of the first error; empty where it names none."""
    for text in (build.reason, build.first_error):
        # What a compiler says it was included from stands before the error itself.
        lines = [line for line in text.splitlines() if "error" in line.lower()] or text.splitlines()
        for line in lines:
            place = _PLACE.search(line) or _CONFIG_PLACE.search(line)
            if place and ".." not in place[1]:
                return place[1]
    return ""


def _why(build: Build) -> str:
    reason = " ".join(build.reason.split())
    return reason if len(reason) <= _SHORT else f"{reason[:_SHORT]}..."
