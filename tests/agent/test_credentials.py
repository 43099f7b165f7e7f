"""The token file: read anew each time, and warned about when others may read it."""

import io
from pathlib import Path

import pytest
from tidemark_agent.log import Log
from tidemark_agent.wire.host import token_reader


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_file_that_others_may_use_is_warned_about_and_read(tmp_path: Path, mode: int, warned: bool) -> None:
    file = tmp_path / "token"
    file.write_text("tm_1\n")
    file.chmod(mode)
    stream = io.StringIO()
    assert token_reader(file, Log(stream))() == "tm_1"
    assert ("token-exposed" in stream.getvalue()) is warned
    assert "tm_1" not in stream.getvalue()


def test_file_that_comes_later_is_read_then(tmp_path: Path) -> None:
    read = token_reader(tmp_path / "token", Log(io.StringIO()))
    with pytest.raises(OSError, match="No such file"):
        read()
    (tmp_path / "token").write_bytes(b"tm_2 \xff\n")
    assert read() == "tm_2 \ufffd"
