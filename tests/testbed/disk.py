"""A machine's disk: a sparse image, whose files are written and read from outside while no machine runs."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.testbed.paths import TestbedError, program, run
from tests.testbed.system import system_image

# A file's content, or the host's file that has it.
Files = Mapping[str, str | bytes | Path]
_REPAIRED = 1


@dataclass(frozen=True)
class Disk:
    """An ext4 file system in `image`, `offset` bytes from its begin (after a partition table)."""

    image: Path
    offset: int = 0

    def write(self, files: Files) -> None:
        """Put files in place, each executable if it begins with #! or its host file is."""
        with tempfile.TemporaryDirectory() as scratch:
            sources = {}
            for number, (name, content) in enumerate(files.items()):
                source = Path(scratch, str(number))
                if isinstance(content, Path):
                    source.symlink_to(content.resolve())
                else:
                    source.write_bytes(content.encode() if isinstance(content, str) else content)
                sources[name] = source
            self._debugfs([line for name, source in sources.items() for line in _commands(name, source)], writable=True)
            self._require_written(sources)

    def read(self, name: str) -> bytes:
        """The content of a file of the guest; FileNotFoundError if it is not there."""
        with tempfile.TemporaryDirectory() as scratch:
            target = Path(scratch, "file")
            self._debugfs([f'dump "{name}" {target}'])
            if not target.exists():
                raise FileNotFoundError(name)
            return target.read_bytes()

    def copy_out(self, name: str, folder: Path) -> Path:
        """A whole directory of the guest, copied below `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._debugfs([f'rdump "{name}" {folder}'])
        return folder / PurePosixPath(name).name

    def repaired(self) -> "Disk":
        """The file system with its journal replayed, as the guest's next boot would; TestbedError if it is damaged."""
        alone = self
        if self.offset:
            # e2fsck recovers a journal only where the file system has the file for itself.
            alone = Disk(self.image.with_name(f"{self.image.name}.partition"))
            files = [f"if={self.image}", f"of={alone.image}", f"skip={self.offset}"]
            run([program("dd"), *files, "iflag=skip_bytes", "bs=1M", "conv=sparse", "status=none"])
        run(["sh", "-c", f'"$@"; test $? -le {_REPAIRED}', "sh", program("e2fsck"), "-p", alone.image])
        return alone

    def _debugfs(self, commands: list[str], *, writable: bool = False) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".debugfs") as script:
            script.write("\n".join(commands) + "\n")
            script.flush()
            return run([program("debugfs"), *(["-w"] if writable else []), "-f", script.name, self._where])

    @property
    def _where(self) -> str:
        """The file system as e2fsprogs' programs are told it."""
        return f"{self.image}?offset={self.offset}" if self.offset else str(self.image)

    def _require_written(self, sources: Mapping[str, Path]) -> None:
        """Read everything again, for debugfs ends with 0 whatever went wrong."""
        for name, source in sources.items():
            if self.read(name) != source.read_bytes():
                raise TestbedError(f"{name} was not written whole into {self.image.name}: is the disk full?")


def system_disk(image: Path, files: Files) -> Disk:
    """A disk of its own for one machine: the testbed's system and some files."""
    # cp keeps the holes: the image is mostly empty.
    run(["cp", "--sparse=always", system_image(), image])
    disk = Disk(image)
    disk.write(files)
    return disk


def _commands(name: str, source: Path) -> list[str]:
    """The debugfs commands that put the host's file `source` at `name`, in place of what is there."""
    path = PurePosixPath(name)
    folders = [f'mkdir "{folder}"' for folder in reversed(path.parents) if folder != PurePosixPath("/")]
    with source.open("rb") as stream:
        starts = stream.read(2) == b"#!"
    mode = "0100755" if starts or source.stat().st_mode & 0o100 else "0100600"
    return [*folders, f'rm "{name}"', f'write {source} "{name}"', f'sif "{name}" mode {mode}']
