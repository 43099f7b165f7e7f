"""Settings of a real kernel: made, verified, and put back after the agent that made them was killed."""

import json
from pathlib import Path

import pytest

from tests.testbed.disk import Files
from tests.testbed.guest import run_in_guest
from tests.testbed.kernels import BASE, kernel

pytestmark = pytest.mark.real
AGENT = "/usr/lib/tidemark-agent.pyz"
# Prepares, looks, and dies as if the kernel had killed it.
PREPARE = """\
import json, os, signal, sys, threading
from pathlib import Path

sys.path.insert(0, "/usr/lib/tidemark-agent.pyz")
from tidemark_agent.log import Log
from tidemark_agent.prepare import JOURNAL_NAME, PrepareConfig, Preparation

state = Path("/var/lib/tidemark-agent")
state.mkdir(parents=True)
made = Preparation(PrepareConfig(), journal=state / JOURNAL_NAME, log=Log(), stop=threading.Event())
settings = [*made.apply()]
with made.case({"aslr": "off", "thp": "always", "huge_pages": {"2048": 8}, "numa_balancing": "off"}) as applied:
    settings += applied
    print("settings", json.dumps([setting.as_json() for setting in settings]), flush=True)
    os.system("sh /look inside")
    os.kill(os.getpid(), signal.SIGKILL)
"""
LOOK = """\
for f in /proc/sys/kernel/randomize_va_space /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/vm/nr_hugepages \
/proc/irq/default_smp_affinity /proc/sys/kernel/watchdog; do
    [ -e $f ] && echo "$1 $f $(cat $f)"
done
echo "$1 swap $(sed 1d /proc/swaps | wc -l)"
"""
COMMAND = f"""\
dd if=/dev/zero of=/swapfile bs=1M count=16 2>/dev/null
chmod 600 /swapfile
mkswap /swapfile >/dev/null
swapon /swapfile
sh /look before
python3 /prepare.py 2>/run/prepare.log
echo "died with $?"
tail -n 3 /run/prepare.log
sh /look killed
python3 {AGENT} restore
sh /look after
"""


def looked(output: str, word: str) -> dict[str, str]:
    lines = [line.split(maxsplit=2) for line in output.splitlines() if line.startswith(f"{word} ")]
    return {name: value.strip() for _, name, value in lines}


def test_settings_of_a_killed_agent_are_put_back_in_a_running_kernel(agent_program: Path, tmp_path: Path) -> None:
    files: Files = {
        AGENT: agent_program,
        "/prepare.py": PREPARE,
        "/look": LOOK,
        "/etc/tidemark/agent.toml": 'server = "http://127.0.0.1:1"\ntoken_file = "/etc/tidemark/token"\n',
    }
    output = run_in_guest(files, COMMAND, folder=tmp_path, kernel=kernel(BASE).image, cpus=2, cpu="Haswell")
    settings = json.loads(next(line for line in output.splitlines() if line.startswith("settings ")).partition(" ")[2])
    before, inside, after = looked(output, "before"), looked(output, "inside"), looked(output, "after")
    assert "died with 137" in output, output
    assert inside["/proc/sys/kernel/randomize_va_space"] == "0"
    assert inside["/sys/kernel/mm/transparent_hugepage/enabled"].startswith("[always]")
    assert inside["/proc/sys/vm/nr_hugepages"] == "8"
    assert (before["swap"], inside["swap"]) == ("1", "0")
    assert looked(output, "killed") == inside
    assert after == before, output
    assert {setting["outcome"] for setting in settings} <= {"set", "kept", "unavailable"}
    assert next(s for s in settings if s["name"] == "governor")["outcome"] == "unavailable"
