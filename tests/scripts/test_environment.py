import socket
import stat
from pathlib import Path

import environ
import pytest

from scripts.stack import StackError
from scripts.stack.places import choose_port, read_env_file, secret_key, write_env_file

VALUES = {
    "TIDEMARK_SECRET_KEY": "a-b_c",
    "TIDEMARK_DATABASE_URL": "postgres://tidemark@/tidemark?host=/srv/a%20b",
    "TIDEMARK_MAIL_FROM": "Tidemark <tidemark@localhost>",
    "TIDEMARK_STATE_DIR": '/srv/with space/and "quotes"',
}


@pytest.fixture
def taken() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def test_settings_file_gives_django_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, str] = {}
    monkeypatch.setattr(environ.Env, "ENVIRON", read)
    write_env_file(tmp_path / "env", VALUES)
    environ.Env.read_env(str(tmp_path / "env"))
    assert read == VALUES
    assert read_env_file(tmp_path / "env") == VALUES


def test_settings_file_is_for_its_owner_only(tmp_path: Path) -> None:
    write_env_file(tmp_path / "env", VALUES)
    assert stat.S_IMODE((tmp_path / "env").stat().st_mode) == 0o600


def test_value_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="TIDEMARK_X"):
        write_env_file(tmp_path / "env", {"TIDEMARK_X": "it's"})


def test_secret_key_outlives_a_restart() -> None:
    first = secret_key({})
    assert len(first) > 40
    assert secret_key({"TIDEMARK_SECRET_KEY": first}) == first


def test_asked_port_that_is_taken_is_named(taken: socket.socket) -> None:
    port = taken.getsockname()[1]
    with taken, pytest.raises(StackError, match=f"port {port}"):
        choose_port({"TIDEMARK_PORT": str(port)}, {})


def test_port_that_is_no_number_is_refused() -> None:
    with pytest.raises(StackError, match="web"):
        choose_port({"TIDEMARK_PORT": "web"}, {})


def test_address_stays_the_same_over_restarts_while_its_port_is_free(taken: socket.socket) -> None:
    port = taken.getsockname()[1]
    with taken:
        assert choose_port({}, {"TIDEMARK_PORT": str(port)}) != port
    assert choose_port({}, {"TIDEMARK_PORT": str(port)}) == port
