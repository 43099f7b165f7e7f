"""Documents may come from anywhere: what is wrong in them is said, and nothing of them reaches terminal or shell."""

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.reproduce.document import DocumentError, document_of, read_document, read_source

from tests.agent.reproduce.documents import build_cell, build_document
from tests.agent.test_answers import answer, raw_server


def read(document: Any) -> Any:
    return read_document(json.dumps(document).encode())


def changed(path: str, value: Any) -> dict[str, Any]:
    """The document with the value at `path` replaced."""
    document: Any = copy.deepcopy(build_document())
    place = document
    *way, last = [int(word) if word.isdigit() else word for word in path.split("/")]
    for word in way:
        place = place[word]
    place[last] = value
    return dict(document)


def test_whole_document_is_read() -> None:
    published = read(build_document())
    assert (published.benchmark, published.case, published.runs) == ("mm-basic", "copy", 6)
    assert published.cells[0].ratio == 0.5
    assert published.machines[0].flags == {"erms", "fsrm"}
    assert published.machines[0].patched.build_id == "cd" * 20


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "other", "no tidemark-case document"),
        ("version", 2, "has version 2, this agent reads 1"),
        ("version", "\x1b[31m", "has version"),
        ("case", None, "case is missing"),
        ("case/benchmark", "../../etc", "case.benchmark is '../../etc', which is no name"),
        ("case/name", "a;rm -rf /", "which is no name"),
        ("case/name", "--help", "which is no name"),
        ("case/version", "1", "case.version is no SHA-256"),
        ("case/runs", 1, "leaves nothing"),
        ("case/runs", 10**9, "case.runs is no number"),
        ("case/runs", True, "case.runs is no number"),
        ("case/runs", "6", "case.runs is no number"),
        ("case/timeout_seconds", -1, "case.timeout_seconds is no number"),
        ("metrics", [], "metrics is empty"),
        ("metrics", {}, "metrics is no list"),
        ("metrics/0/better", "larger", "metrics[0].better"),
        ("metrics/0/name", "time\n", "metrics[0].name"),
        ("machines/0", "box", "machines[0] is no object"),
        ("machines/0/flags", "erms", "machines[0].flags"),
        ("machines/0/base/build_id", "xyz", "machines[0].base.build_id"),
        ("cells/0/verdict", "great", "cells[0].verdict"),
        ("cells/0/ratio", float("nan"), "cells[0].ratio is no finite number"),
        ("cells/0/ratio", "0.5", "cells[0].ratio is no finite number"),
        ("cells/0/base_mean", 10**400, "cells[0].base_mean is no finite number"),
        ("cells", [build_cell()] * 2001, "cells is no list of at most 2000"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path: str, value: Any, words: str) -> None:
    with pytest.raises(DocumentError) as raised:
        read(changed(path, value))
    assert words in str(raised.value)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b"<html>", b'{"format": "tidemark-case"}'])
def test_what_is_no_document_is_refused(raw: bytes) -> None:
    with pytest.raises(DocumentError):
        read_document(raw)


def test_texts_lose_what_a_terminal_would_act_on() -> None:
    evil = "\x1b]0;owned\x07 a\u202eb \x9b2J" + "x" * 100_000
    published = read({**build_document(), "subject": evil, "cells": [build_cell(reason=evil)]})
    for text in (published.subject, published.cells[0].reason):
        assert len(text) <= 300
        assert text.isprintable()


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda one: st.lists(one, max_size=3)), st.data()
)
def test_no_value_anywhere_breaks_the_reader(value: Any, data: st.DataObject) -> None:
    paths = ["case", "case/title", "metrics/0/unit", "machines/0/cmdline", "machines/0/flags", "cells/0/mde", "cells"]
    document = changed(data.draw(st.sampled_from(paths)), value)
    with suppress(DocumentError):
        assert read(document).case == "copy"


def test_file_is_read_and_a_huge_or_missing_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text(json.dumps(build_document()))
    assert read_document(read_source(str(tmp_path / "case.json"))).case == "copy"
    with (tmp_path / "huge").open("wb") as stream:
        stream.truncate(5 * 1024 * 1024)
    for source in ("huge", "missing", ".", "nul\0"):
        with pytest.raises(DocumentError):
            read_source(str(tmp_path / source))
    for source in ("ftp://example.org/x", "file:///etc/passwd", "http://", "http://[::1"):
        with pytest.raises(DocumentError):
            read_source(source)


def test_page_and_case_say_where_the_document_is() -> None:
    case = "folio-copy/folio_copy-DRAM0-to-DRAM1-1M-hot-1G"
    wanted = f"https://perf.example.org/x/api/v1/series/7/cases/{case}/"
    for page in ("series/7/", "series/7", "series/7/#again"):
        assert document_of(f"https://perf.example.org/x/{page}", case) == wanted
    assert "/api/v1/findings/31/cases/" in document_of("http://127.0.0.1:8000/findings/31/", case)
    for page, name in (("https://perf.example.org/", case), ("case.json", case), ("https://h/series/7/", "../x")):
        with pytest.raises(DocumentError):
            document_of(page, name)


def test_document_is_fetched_without_a_token() -> None:
    said = answer("200 OK", json.dumps(build_document()).encode())
    with raw_server(lambda connection: connection.sendall(said)) as server:
        assert read_document(read_source(f"{server}/api/v1/series/3/cases/mm-basic/copy/")).runs == 6


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answer("302 Found", more="Location: http://elsewhere.example/\r\n"), "points to http://elsewhere.example/"),
        (answer("404 Not Found", b"{}"), "answers 404"),
        (answer("200 OK", b"{", size=50), "49 bytes are missing"),
        (answer("200 OK", b" " * (4 * 1024 * 1024 + 1)), "larger than"),
        (b"SSH-2.0\r\n", "cannot be fetched"),
    ],
    ids=["redirect", "404", "torn", "huge", "no HTTP"],
)
def test_server_that_gives_no_document_is_told_apart(said: bytes, words: str) -> None:
    with raw_server(lambda connection: connection.sendall(said)) as server, pytest.raises(DocumentError) as raised:
        read_source(f"{server}/x")
    assert words in str(raised.value)
