import subprocess
import sys
from pathlib import Path

import pytest

from server.core.programs.git import GitError, run
from server.core.programs.sandbox import Limits, TooMuchOutputError, exchange


def started(program: str, *words: str, limits: Limits | None = None) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    command = [*(limits.prefix if limits else ()), sys.executable, "-c", program, *words]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def talk(process: "subprocess.Popen[bytes]", stdin: bytes = b"", timeout: float | None = 20.0) -> tuple[bytes, bytes]:
    with process:
        try:
            return exchange(process, stdin, timeout=timeout, most_output=10**7, tail=20)
        finally:
            process.kill()


def test_large_input_comes_back_whole() -> None:
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    sent = bytes(range(256)) * 12_000
    assert talk(started(echo), sent) == (sent[::-1], b"")


def test_program_that_does_not_listen_is_no_error() -> None:
    assert talk(started("print('done')"), b"x" * 10**6, None) == (b"done\n", b"")


def test_only_the_end_of_the_errors_is_kept() -> None:
    _, said = talk(started("import sys; sys.stderr.write('x' * 10**6 + 'the end of the errors')"))
    assert said == b"he end of the errors"


def test_hanging_program_is_given_up_even_when_it_closed_its_outputs() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        talk(started("import os, time; os.close(1); os.close(2); time.sleep(20)"), timeout=0.3)


def test_flood_of_output_is_cut_off() -> None:
    with pytest.raises(TooMuchOutputError):
        talk(started("while True: print('x' * 100000)"))


def test_limits_hold_for_files_and_memory(tmp_path: Path) -> None:
    limits = Limits(file_bytes=1000, memory_bytes=300 * 2**20)
    file = tmp_path / "file"
    writes = "import sys; open(sys.argv[1], 'wb', buffering=0).write(b'x' * 5000); print('went on')"
    assert talk(started(writes, str(file), limits=limits))[0] in {b"", b"went on\n"}
    assert file.stat().st_size == 1000
    assert talk(started("x = bytes(10**9); print('got it')", limits=limits))[0] == b""
    assert talk(started("x = bytes(10**9); print('got it')"))[0] == b"got it\n"


def test_git_that_prints_too_much_is_a_temporary_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.core.programs.git._MOST_OUTPUT", 1000)
    with pytest.raises(GitError, match="git help") as caught:
        run("help", "-a", cwd=tmp_path)
    assert (caught.value.code, caught.value.permanent) == ("git-too-much", False)
