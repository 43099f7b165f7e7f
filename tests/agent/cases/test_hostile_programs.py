"""Programs that do what they should not: each ends as an outcome with its reason, and nothing of it goes on."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from tidemark_agent.errors import StoppedError

from tests.agent.cases.support import CASE, CORE, HEAD, METRIC, Bench, prints

NAN, INFINITE = float("nan"), float("inf")


def test_program_that_hangs_is_a_timeout(bench: Bench) -> None:
    bench.write_script("import time\nprint('so far', flush=True)\ntime.sleep(60)\n", CASE + "timeout_seconds = 5\n")
    result = bench.run()
    assert (result.outcome, result.reason, result.evidence) == ("timeout", "ran longer than 5 s", "so far\n")


def test_program_that_cannot_be_killed_ends_the_measuring_in_this_boot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs in the kernel may hold locks or a CPU: later values would be of a sick machine."""
    monkeypatch.setattr("tidemark_agent.system.process._END_SECONDS", 0.2)
    # The guard stands above the launcher: stopped, it ends nothing.
    stop = "import os, signal, time\nstat = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()\n"
    source = stop + "os.kill(int(stat[1]), signal.SIGSTOP)\ntime.sleep(60)\n"
    bench.write_script(source, CASE + "timeout_seconds = 2\n")
    runner = bench.runner()
    program = Path(sys.executable).name
    hung, later = runner.run(bench.planned(), CORE), runner.run(bench.planned(), CORE)
    assert (hung.outcome, hung.reason) == ("timeout", f"{program} cannot be killed: it hangs in the kernel")
    assert later.outcome == "infrastructure"
    assert later.reason == f"not measured after made-up/one: {hung.reason}"


def test_runs_share_the_time_of_their_case(bench: Bench) -> None:
    per_run = CASE + 'timeout_seconds = 1\ncommand = ["{program}", "{case}"]\n'
    bench.write_script("import time\ntime.sleep(0.6)\n" + prints(1), per_run)
    assert (bench.run().outcome, bench.run().values) == ("timeout", {})


def test_program_that_fails_is_failed_with_its_own_words(bench: Bench) -> None:
    bench.write_script('import sys\nprint(\'{"case": "one", "error": "no huge pages"}\')\nsys.exit(1)\n')
    result = bench.run()
    assert (result.outcome, result.reason) == ("failed", "exit status 1: no huge pages")


def test_program_that_kills_itself_is_failed(bench: Bench) -> None:
    bench.write_script("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    result = bench.run()
    assert (result.outcome, result.reason) == ("failed", f"{Path(sys.executable).name} was killed by signal 11")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGTERM)", "os._exit(2)", "os.kill(os.getppid(), 9)"])
def test_program_that_ends_badly_is_no_result_when_a_stop_is_on_its_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 60)
    bench.write_script(f"import os, signal\nopen({str(bench.root / 'ended')!r}, 'w').close()\n{end}\n")

    def stop() -> None:
        while not (bench.root / "ended").exists():
            time.sleep(0.02)
        time.sleep(1)
        bench.stop.set()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(StoppedError):
        bench.run()
    stopper.join()


@pytest.mark.parametrize("values", [(1, 2), (1, 2, 3, 4), (), (1, NAN, 3), (1, 0, 3), (1, -2, 3), (1, INFINITE, 3)])
def test_too_few_too_many_or_senseless_values_are_garbled_and_counted(bench: Bench, values: tuple[object, ...]) -> None:
    bench.write_script(prints(*values))
    result = bench.run()
    good = sum(1 for value in values if isinstance(value, int) and value > 0)
    assert (result.outcome, result.values) == ("garbled", {})
    assert result.reason == f"garbled output: {good} good values of time, 3 wanted"


def test_zero_is_a_value_where_the_metric_says_so(bench: Bench) -> None:
    bench.write_script(prints(0, 0, 1))
    toml = (bench.root / "benchmarks/made-up/benchmark.toml").read_text()
    bench.write(toml + "zero = true\n")
    assert bench.run().values == {"time": (0.0, 0.0, 1.0)}


def test_coloured_lines_are_read_and_lines_with_kernel_messages_inside_are_not(bench: Bench) -> None:
    good = r"""print('\x1b[31m{"case": "one", "metric": "time", "value": 1}\x1b[0m')
print('[    1.433686] {"case": "one", "metric": "time", "value": 2}')
"""
    broken = r"""print('{"case": "one", "metric": "time", "value": 3[    1.433686] printk: x')"""
    bench.write_script(good + broken)
    assert bench.run().reason == "garbled output: 2 good values of time, 3 wanted"


def test_program_that_prints_without_end_is_garbled_and_stopped(bench: Bench) -> None:
    bench.write_script("while True:\n    print('x' * 100000)\n")
    result = bench.run()
    assert (result.outcome, result.reason) == ("garbled", "printed more than 4 MiB")
    assert len(result.evidence.encode()) <= 2048


def test_too_much_output_of_a_program_that_ends_at_once_is_garbled_too(bench: Bench) -> None:
    bench.write_script(prints(1, 2, 3) + "import sys\nsys.stdout.write('x' * (5 << 20))\n")
    assert bench.run().reason == "printed more than 4 MiB"


def test_program_that_is_told_that_its_file_is_too_large_is_failed_for_that(bench: Bench) -> None:
    bench.write_script("open('large', 'wb').write(bytes(16 << 20))\n", CASE + "needs = { disk_mb = 8 }\n")
    result = bench.run()
    assert (result.outcome, result.reason) == ("failed", "wrote more than 8 MiB")


def test_program_that_writes_a_large_file_is_killed(bench: Bench) -> None:
    write = "os.execvp('dd', ['dd', 'if=/dev/zero', 'of=large', 'bs=1M', 'count=64', 'status=none'])"
    # Python ignores the signal; other programs, which do not, are killed by it.
    source = f"import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n{write}\n"
    bench.write_script(source, CASE + "needs = { disk_mb = 8 }\n")
    result = bench.run()
    assert (result.outcome, result.reason) == ("failed", "wrote more than 8 MiB")


def test_program_s_signals_are_as_every_program_expects_them(bench: Bench) -> None:
    tool = bench.root / "tool"
    # A writer to a closed pipe ends silently, by SIGPIPE, unless it was told to ignore that.
    tool.write_text("#!/bin/sh\n(yes; echo yes ended with $? >&2) | head -n 1\n")
    tool.chmod(0o755)
    bench.programs = {"tool": tool}
    toml = HEAD + '[program]\nkind = "external"\nname = "tool"\n' + CASE + 'command = ["{program}"]\n' + METRIC
    bench.write(toml)
    assert "yes ended with 141" in bench.run().evidence


def test_program_that_writes_many_files_is_failed(bench: Bench) -> None:
    source = """
import os, time
for number in range(24):
    with open(str(number), "wb") as file:
        file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
time.sleep(30)
"""
    bench.write_script(source, CASE + "needs = { disk_mb = 8 }\n")
    result = bench.run()
    assert (result.outcome, result.reason) == ("failed", "wrote more than 8 MiB")


def test_daemon_that_a_program_leaves_is_killed_and_named(bench: Bench, tmp_path: Path) -> None:
    mark = f"sleep-{os.getpid()}"
    (tmp_path / mark).symlink_to("/bin/sleep")
    source = f"import subprocess\nsubprocess.Popen([{str(tmp_path / mark)!r}, '300'], start_new_session=True)\n"
    bench.write_script(source + prints(1, 2, 3))
    result = bench.run()
    assert result.outcome == "failed"
    assert result.reason == f"left processes running, which were killed: {mark[:15]}"
    assert [path for path in Path("/proc").glob("[0-9]*/comm") if name_in(path) == mark[:15]] == []


def name_in(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def test_program_that_removes_all_it_finds_is_read_nevertheless(bench: Bench) -> None:
    remove = "import os, shutil\nshutil.rmtree(os.getcwd())\n"
    bench.write_script(remove + prints(1, 2, 3))
    assert bench.run().outcome == "measured"


def test_children_that_are_about_to_end_are_no_daemons(bench: Bench) -> None:
    bench.write_script("import subprocess\nsubprocess.Popen(['sleep', '0.3'])\n" + prints(1, 2, 3))
    assert bench.run().outcome == "measured"


def test_script_with_a_fault_is_failed_with_the_end_of_its_traceback(bench: Bench) -> None:
    bench.write_script("raise KeyError('pages')\n")
    result = bench.run()
    assert (result.outcome, result.reason) == ("failed", "exit status 1: KeyError: 'pages'")


@pytest.mark.parametrize("end", ["", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"])
def test_case_in_which_memory_ran_out_is_oom_however_its_program_ended(bench: Bench, end: str) -> None:
    bench.system = bench.root / "system"
    (bench.system / "proc/sys/kernel/random").mkdir(parents=True)
    (bench.system / "proc/sys/kernel/random/boot_id").write_text("d0869750-7ee3-42c5-b659-c846af78663f\n")
    vmstat = bench.system / "proc/vmstat"
    vmstat.write_text("oom_kill 3\npgfault 7\n")
    # What the kernel would count, had it killed two children of this program.
    source = f"open({str(vmstat)!r}, 'w').write('oom_kill 5\\n')\n" + prints(1, 2, 3) + end
    bench.write_script(source)
    result = bench.run()
    assert (result.outcome, result.values) == ("oom", {})
    assert result.reason == "memory ran out: processes killed by the kernel: 2"


LINK, PIPE = "os.symlink({secret!r}, {place!r})\n", "os.mkfifo({place!r})\n"


@pytest.mark.parametrize("puts", [LINK, PIPE], ids=["link", "pipe"])
def test_program_that_puts_a_link_or_a_pipe_in_place_of_its_output_has_failed(bench: Bench, puts: str) -> None:
    secret = bench.root / "secret"
    secret.write_text(prints(1, 2, 3))
    put = puts.format(secret=str(secret), place="../output")
    bench.write_script(f"import os\nos.unlink('../output')\n{put}" + prints(1, 2, 3), CASE + "timeout_seconds = 10\n")
    result = bench.run()
    program = Path(sys.executable).name
    assert (result.outcome, result.reason) == ("failed", f"{program} put something else in place of its output")
    assert (result.evidence, result.values) == ("", {})


@pytest.mark.parametrize("puts", [LINK, PIPE], ids=["link", "pipe"])
def test_report_of_a_program_s_end_goes_through_nothing_that_the_program_has_put_there(bench: Bench, puts: str) -> None:
    secret = bench.root / "secret"
    secret.write_text("kept")
    put = puts.format(secret=str(secret), place="../ended.json")
    bench.write_script(f"import os\n{put}" + prints(1, 2, 3), CASE + "timeout_seconds = 10\n")
    assert bench.run().outcome == "measured"
    assert secret.read_text() == "kept"


@pytest.mark.parametrize("puts", [LINK, PIPE], ids=["link", "pipe"])
def test_counters_are_read_through_no_link_and_from_no_pipe(bench: Bench, puts: str) -> None:
    secret, perf = bench.root / "secret", bench.root / "perf"
    secret.write_text("7,,cycles,1,100.00,,\n")
    perf.write_text('#!/bin/sh\nshift 7\nexec "$@"\n')
    perf.chmod(0o755)
    bench.programs, bench.with_counters = {"perf": perf}, True
    put = puts.format(secret=str(secret), place="../counters")
    bench.write_script(
        f"import os\nif os.path.lexists('../counters'): os.unlink('../counters')\n{put}" + prints(1, 2, 3)
    )
    result = bench.run()
    assert (result.outcome, result.counters) == ("measured", {})
    assert secret.read_text() == "7,,cycles,1,100.00,,\n"
