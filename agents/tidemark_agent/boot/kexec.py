"""The boot driver `kexec`: the running kernel starts the next one. A reset of any kind brings the safe kernel back."""

import threading
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.boot.driver import KernelFiles, Reboots
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.system.process import capture

_SECONDS = 120.0


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
        capture(["kexec", *words], scratch=self.scratch, timeout=_SECONDS, stop=self.stop)
