"""The agent's own client and reader against the real service, over HTTP."""

import hashlib
import io
import threading
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from pytest_django.live_server_helper import LiveServer
from tidemark_agent.errors import RefusedError
from tidemark_agent.log import Log
from tidemark_agent.reproduce.document import DocumentError, document_of, read_document, read_source
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.spool import Spool, print_spool

from server.builds.models import Build
from server.builds.storage import FolderStore
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Session
from server.lab.work import local_builder
from server.results.models import Benchmark
from tests.api.test_agent_api import dispatched_build
from tests.builders import build_comparison, build_session

pytestmark = pytest.mark.django_db(transaction=True)


def build_client(server: str) -> Client:
    token = issue_token(name="builder", scope=ApiToken.Scope.BUILDER, subject=local_builder().name)
    log, stop = Log(io.StringIO()), threading.Event()
    return Client(server=server, token=lambda: token, agent="agent-0001", log=log, stop=stop)


def test_packed_results_and_artifacts_of_the_agent_arrive_whole(
    live_server: LiveServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = dispatched_build()
    content = b"ffffffff81000000 T _text\n" * 20_000
    (tmp_path / "System.map").write_bytes(content)
    client = build_client(live_server.url)
    client.post("attempts/build-1/claim", {"version": "0.1.0", "host": "here"}, patience=30)
    spool = Spool(tmp_path / "spool", owner=tmp_path / "token", log=Log(io.StringIO()))
    sha256, size = spool.put_artifact(tmp_path / "System.map")
    body: dict[str, Any] = {
        "outcome": "failed",
        "reason": "does not compile",
        "seconds": 1.0,
        "log_tail": "mm/util.c: error\n" * 5000,
        "artifacts": [{"kind": "system-map", "sha256": sha256, "size": size}],
    }
    spool.put("attempts/build-1/build", body, artifacts=(sha256,))
    spool.put("attempts/build-99/build", body)
    assert [sent.path for sent in spool.upload(client, patience=30)] == ["attempts/build-1/build"]
    assert FolderStore().place(hashlib.sha256(content).hexdigest()).read_bytes() == content
    build.refresh_from_db()
    assert build.state == Build.State.FAILED
    print_spool(tmp_path / "spool")
    assert "0 waiting, 1 refused" in capsys.readouterr().out


def test_refusal_of_the_service_is_told_from_a_page_of_somebody_else(live_server: LiveServer) -> None:
    with pytest.raises(RefusedError, match="404 not-found"):
        build_client(live_server.url).post("attempts/build-77/end", {"outcome": "done"}, patience=30)


def test_published_case_is_fetched_by_its_address(live_server: LiveServer) -> None:
    session = build_session(state=Session.State.DONE)
    build_comparison(session)
    Benchmark.objects.update(version="ab" * 32)
    address = f"{live_server.url}/api/v1/series/{session.series_id}/cases/mm-basic/"
    published = read_document(read_source(f"{address}fault-4k/"))
    assert published.cells[0].verdict == "unchanged"
    page = f"{live_server.url}{reverse('series', args=[session.series_id])}"
    assert document_of(page, "mm-basic/fault-4k") == f"{address}fault-4k/"
    with pytest.raises(DocumentError, match="answers 404"):
        read_source(f"{address}nothing/")
