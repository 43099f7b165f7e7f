"""A power cut right after GRUB was armed for one boot: it reads no journal, and must see all of it nevertheless."""

import re
from pathlib import Path

import pytest

from tests.testbed.disk import Files
from tests.testbed.grubdisk import ROOT_WORDS, grub_disk
from tests.testbed.kernels import BASE, PATCHED, SAFE, kernel
from tests.testbed.machine import PSTORE, TestMachine
from tests.testbed.site import AGENT

pytestmark = pytest.mark.real
PATIENCE = 120.0
ARM = f"""\
import sys, threading
from pathlib import Path

sys.path.insert(0, "{AGENT}")
from tidemark_agent.boot.driver import KernelFiles
from tidemark_agent.boot.loader import GrubDriver
from tidemark_agent.boot.driver import Reboots
from tidemark_agent.config import BootConfig
from tidemark_agent.log import Log

image, words = Path(sys.argv[1]), Path("/words").read_text()
place = Path("/boot/grub/grubenv")
driver = GrubDriver(place, Reboots(BootConfig()), Path("/var/lib"), Log(), threading.Event())
driver.arm(KernelFiles(image=image, build_id="", command_line=f"{{words}} tidemark.boot={{sys.argv[2]}}"))
print("ARMED", sys.argv[2], flush=True)
"""
START = """\
#!/bin/sh
n=$(($(cat /count 2>/dev/null || echo 0) + 1))
echo $n >/count
sync
echo "RUNS $(md5sum </sys/kernel/notes | cut -c1-8) $(grep -o 'tidemark.boot=.*' /proc/cmdline)"
case $n in
1) python3 /arm.py /base first; sync; reboot -f ;;
2) python3 /arm.py /patched second; sleep 600 ;;
3) grep -c next_entry=tidemark /boot/grub/grubenv; reboot -f ;;
*) poweroff -f ;;
esac
"""


def test_kernel_that_was_armed_before_a_power_cut_is_booted_once(agent_program: Path, tmp_path: Path) -> None:
    files: Files = {
        AGENT: agent_program,
        "/arm.py": ARM,
        "/words": f"{ROOT_WORDS} {PSTORE}",
        "/base": kernel(BASE).image,
        "/patched": kernel(PATCHED).image,
        "/etc/testbed/start": START,
    }
    disk = grub_disk(tmp_path / "disk", kernel(SAFE).image, files, folder=tmp_path)
    with TestMachine(tmp_path, disk) as machine:
        assert machine.wait_for("ARMED second", PATIENCE), machine.said()[-2000:]
        machine.cut()
        machine.start()
        assert machine.wait(PATIENCE), machine.said()[-2000:]
    runs = re.findall(r"^RUNS (\w+) ?(\S*)\r?$", machine.said(), re.MULTILINE)
    assert [nonce for _, nonce in runs] == ["", "tidemark.boot=first", "tidemark.boot=second", ""]
    # The one-shot kernel was the second one in truth, not the first under its name.
    assert len({kernel_seen for kernel_seen, _ in runs}) == 3
    assert runs[0] == runs[3]
