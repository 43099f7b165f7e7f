"""Small edits of the kernel's source that are put back afterwards, also after a kill in between."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.paths import TestbedError


@dataclass(frozen=True)
class Edit:
    """In `file`, the first place that reads `old` shall read `new`."""

    file: str
    old: str
    new: str


def apply_edits(source: Path, pristine: Path, edits: Sequence[Edit]) -> None:
    """Edit files of `source`; what they were is kept below `pristine` first."""
    for edit in edits:
        file, kept = source / edit.file, pristine / edit.file
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(f"{kept.name}.part")
            shutil.copy2(file, part)
            part.replace(kept)
        text = file.read_text()
        if edit.old not in text:
            raise TestbedError(f"{edit.file} does not have what should be edited: {edit.old!r}")
        file.write_text(text.replace(edit.old, edit.new, 1))


def put_back(source: Path, pristine: Path) -> None:
    """Undo all edits. The files are new for make, for what was compiled from them is not what they say."""
    for kept in sorted(pristine.rglob("*")):
        if kept.is_file():
            target = source / kept.relative_to(pristine)
            if kept.suffix != ".part" and target.read_bytes() != kept.read_bytes():
                shutil.copyfile(kept, target)
            kept.unlink()
    shutil.rmtree(pristine, ignore_errors=True)
