"""Command lines of test kernels."""

import pytest
from tidemark_agent.boot.evidence import command_line, nonce_of
from tidemark_agent.errors import InfrastructureError


def test_one_shot_words_of_the_running_kernel_are_not_passed_on() -> None:
    running = "BOOT_IMAGE=/boot/vmlinuz-6.12 root=/dev/vda1 ro quiet panic=30 oops=panic tidemark.boot=old initrd=x"
    made = command_line(running, words=["panic=10", "hugepages=4"], nonce="new")
    assert made == "root=/dev/vda1 ro quiet panic=10 hugepages=4 tidemark.boot=new"


def test_quoted_words_stay_whole() -> None:
    line = 'root=/dev/vda dyndbg="file a.c +p; panic=1 x" ro'
    assert command_line(line, words=[], nonce="n") == f"{line} tidemark.boot=n"


@pytest.mark.parametrize("line", ["a\nb", "a\0b", "a\x1b[0m", "é", 'a="b', "x" * 2048])
def test_what_no_kernel_takes_is_refused(line: str) -> None:
    with pytest.raises(InfrastructureError):
        command_line(line, words=[], nonce="n")
    with pytest.raises(InfrastructureError):
        command_line("root=/dev/vda", words=[line], nonce="n")


def test_longest_command_line_fits_with_its_nonce() -> None:
    spare = 2047 - len("w= tidemark.boot=n")
    assert len(command_line("w=" + "x" * spare, words=[], nonce="n")) == 2047
    with pytest.raises(InfrastructureError, match="2048 bytes"):
        command_line("w=" + "x" * (spare + 1), words=[], nonce="n")


def test_nonce_is_read_back_from_the_command_line() -> None:
    assert nonce_of(command_line("ro", words=[], nonce="abc")) == "abc"
    assert nonce_of("ro quiet") == ""
