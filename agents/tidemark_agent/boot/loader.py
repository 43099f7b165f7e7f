"""Ways into another kernel on a real machine: the boot loader's next entry, and kexec."""

import contextlib
import fcntl
import os
import re
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.boot.driver import KernelFiles, Reboots
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.system.disk import settle, temporary_for, write_durably
from tidemark_agent.system.process import capture

# _IOW('f', 43, __u32) of Linux 5.15: write the journal's content to where it belongs.
_EXT4_IOC_CHECKPOINT = 0x4004662B
_NO_FLAGS = (0).to_bytes(4, "little")


def overwrite(path: Path, data: bytes) -> None:
    """Give the file new content of the same size in the same blocks, durably.

    After a power cut GRUB then reads the new content where it has always been. A file that was truncated or replaced
    would be somewhere else, and GRUB, when it writes one, would write into blocks that may be another file's by then.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size != len(data):
            raise InfrastructureError(f"{path} has {size} bytes, but its new content has {len(data)}")
        if os.pwrite(descriptor, data, 0) != len(data):
            raise InfrastructureError(f"{path} could not be written whole")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checkpoint(directory: Path) -> None:
    """Bring what the file system's journal holds to its place; nothing where there is no such thing (not ext4)."""
    os.sync()
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, _EXT4_IOC_CHECKPOINT, _NO_FLAGS)
    finally:
        os.close(descriptor)


# The boot driver `grub`: GRUB starts a test kernel once (next_entry in its environment), else the safe one.
#
# Kernels stand in a directory of GRUB's own, so its $prefix finds them whatever disks and partitions there are. The
# menu entry is a marked block in custom.cfg, which Debian's grub.cfg reads; the rest of that file is the operator's.

ENTRY = "tidemark"
_SECONDS = 60.0
_SIGNATURE = "# GRUB Environment Block"
_BEGIN, _END = "### BEGIN tidemark (written by tidemark-agent)", "### END tidemark"
_BLOCK = re.compile(rf"\n?{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n", re.DOTALL)
# GRUB's script takes quotes and backslashes apart twice; no kernel parameter needs them here.
_UNSAFE = re.compile(r"[\"'\\]")


@dataclass(frozen=True)
class GrubDriver:
    """Keeps one test kernel beside GRUB's configuration; `environment` is the path of grubenv."""

    environment: Path
    reboots: Reboots
    scratch: Path
    log: Log
    stop: threading.Event

    def check(self) -> None:
        configuration = self._directory / "grub.cfg"
        try:
            text = configuration.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise InfrastructureError(f"GRUB's configuration cannot be read: {error}") from error
        for word in ("next_entry", "custom.cfg"):
            if word not in text:
                raise InfrastructureError(f"{configuration} does not use {word}: one boot cannot be chosen there")
        self._environment()
        if shutil.which("grub-editenv") is None:
            raise InfrastructureError("there is no grub-editenv here")

    def arm(self, kernel: KernelFiles) -> None:
        self.check()
        if found := _UNSAFE.search(kernel.command_line):
            raise InfrastructureError(f"GRUB cannot pass {found[0]} in a kernel's command line")
        self._unset()
        image = self._place(kernel.image, "vmlinuz")
        initramfs = self._place(kernel.initramfs, "initramfs") if kernel.initramfs else None
        self._write_block(_menu_entry(image, initramfs, kernel.command_line))
        # Last, and only when all that it leads to is where GRUB looks for it.
        checkpoint(self._directory)
        self._change("set", f"next_entry={ENTRY}")
        if self._environment().get("next_entry") != ENTRY:
            raise InfrastructureError(f"{self.environment} does not keep next_entry")

    def reboot(self) -> None:
        self.reboots.through_firmware()

    def disarm(self) -> None:
        self._unset()
        self._write_block("")
        shutil.rmtree(self._kernels, ignore_errors=True)

    def leave(self) -> None:
        self.reboots.through_firmware()

    @property
    def _directory(self) -> Path:
        return self.environment.parent

    @property
    def _kernels(self) -> Path:
        return self._directory / "tidemark"

    def _place(self, source: Path, name: str) -> str:
        """Copy a file to where GRUB finds it, durably; its path for GRUB."""
        self._kernels.mkdir(exist_ok=True)
        temporary = temporary_for(self._kernels / name)
        try:
            shutil.copyfile(source, temporary)
            settle(temporary, self._kernels / name)
        finally:
            temporary.unlink(missing_ok=True)
        return f"${{prefix}}/tidemark/{name}"

    def _write_block(self, block: str) -> None:
        custom = self._directory / "custom.cfg"
        old = custom.read_text(encoding="utf-8", errors="surrogateescape") if custom.exists() else ""
        new = _BLOCK.sub("", old) + block
        if new != old:
            write_durably(custom, new.encode("utf-8", errors="surrogateescape"))

    def _unset(self) -> None:
        """Take our one-shot choice back; one that the operator made is not ours to touch."""
        if self._environment().get("next_entry") == ENTRY:
            self._change("unset", "next_entry")

    def _environment(self) -> dict[str, str]:
        """What GRUB reads there: lines NAME=VALUE after the first, which is a signature, filled up with `#`."""
        try:
            lines = self.environment.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError as error:
            raise InfrastructureError(f"GRUB's environment cannot be read: {error}") from error
        if lines[0] != _SIGNATURE:
            raise InfrastructureError(f"{self.environment} is no environment of GRUB: grub-editenv makes one")
        return {name: value for name, is_one, value in (line.partition("=") for line in lines[1:]) if is_one}

    def _change(self, *words: str) -> None:
        """Change GRUB's environment, which always has the same size, without moving it on the disk."""
        copy = temporary_for(self.scratch / "grubenv")
        try:
            shutil.copyfile(self.environment, copy)
            command = ["grub-editenv", str(copy), *words]
            capture(command, scratch=self.scratch, timeout=_SECONDS, stop=self.stop)
            overwrite(self.environment, copy.read_bytes())
        finally:
            copy.unlink(missing_ok=True)


def _menu_entry(image: str, initramfs: str | None, command_line: str) -> str:
    words = " ".join(f"'{word}'" for word in command_line.split())
    lines = [f"  linux {image} {words}"]
    if initramfs:
        lines.append(f"  initrd {initramfs}")
    return "\n".join([f"\n{_BEGIN}", f"menuentry '{ENTRY}' --id '{ENTRY}' {{", *lines, "}", f"{_END}\n"])


_SECONDS_KEXEC = 120.0


@dataclass(frozen=True)
class KexecDriver:
    """Loads kernels with the program `kexec`; the firmware's own boot entry is the safe kernel."""

    reboots: Reboots
    scratch: Path
    log: Log
    stop: threading.Event
    root: Path = Path("/")

    def check(self) -> None:
        if not self._loaded_file.exists():
            raise InfrastructureError("the running kernel has no kexec (CONFIG_KEXEC or CONFIG_KEXEC_FILE)")
        if self._read("proc/sys/kernel/kexec_load_disabled") not in ("0", ""):
            raise InfrastructureError("kexec is switched off until the next boot: kernel.kexec_load_disabled is set")
        lockdown = self._read("sys/kernel/security/lockdown")
        if lockdown and "[none]" not in lockdown:
            raise InfrastructureError(f"the running kernel is locked down and starts signed kernels only: {lockdown}")

    def arm(self, kernel: KernelFiles) -> None:
        self.check()
        words = ["-l", str(kernel.image), f"--command-line={kernel.command_line}"]
        if kernel.initramfs is not None:
            words.append(f"--initrd={kernel.initramfs}")
        try:
            self._kexec("-s", *words)
        except InfrastructureError as by_file:
            # Kernels without CONFIG_KEXEC_FILE know only the older call, for which the program does the loading.
            try:
                self._kexec("-c", *words)
            except InfrastructureError as error:
                raise InfrastructureError(f"the kernel cannot be loaded: {error}; with -s: {by_file}") from error
        if not self._is_loaded():
            raise InfrastructureError("kexec said that it loaded the kernel, but none is loaded")

    def reboot(self) -> None:
        self.reboots.into_loaded()

    def disarm(self) -> None:
        for words in (("-u",), ("-s", "-u")):
            if not self._is_loaded():
                return
            try:
                self._kexec(*words)
            except InfrastructureError as error:
                self.log.warning("kexec-unload-failed", reason=str(error))
        if self._is_loaded():
            # Harmless: only an explicit kexec starts it, any other reboot goes through the firmware.
            self.log.warning("kexec-still-loaded")

    def leave(self) -> None:
        self.reboots.through_firmware()

    @property
    def _loaded_file(self) -> Path:
        return self.root / "sys/kernel/kexec_loaded"

    def _is_loaded(self) -> bool:
        return self._read("sys/kernel/kexec_loaded") == "1"

    def _read(self, name: str) -> str:
        try:
            return (self.root / name).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""

    def _kexec(self, *words: str) -> None:
        capture(["kexec", *words], scratch=self.scratch, timeout=_SECONDS_KEXEC, stop=self.stop)
