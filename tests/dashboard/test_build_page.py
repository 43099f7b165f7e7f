"""The page of a build: what it is made of, why it failed, and the files that came out."""

import hashlib
from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from server.builds.models import Artifact, Build
from server.builds.storage import put_artifact
from tests.builders import because, build_attempt, build_build, build_revision, build_series, build_session
from tests.dashboard.conftest import Reader
from tests.lab_scenarios import made_build
from tests.scenarios import broken_build

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_store(settings: Settings, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path


def page_of(build: Build) -> str:
    return f"/builds/{build.pk}/"


def store(build: Build, kind: str, content: bytes) -> Artifact:
    sha256 = hashlib.sha256(content).hexdigest()
    put_artifact(sha256, [content])
    return Artifact.objects.create(build=build, kind=kind, sha256=sha256, size=len(content))


def read(client: Client, build: Build, kind: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    response = client.get(f"{page_of(build)}files/{kind}/", headers=headers)
    return response.status_code, response.getvalue(), dict(response.headers)


def test_unknown_build_is_not_found(reader: Reader) -> None:
    assert "404" in reader.read("/builds/1/", status=404)
    assert "404" in reader.read("/builds/1/files/log/", status=404)


def test_built_kernel_tells_what_it_is_made_of(reader: Reader) -> None:
    build = made_build()
    text = " ".join(reader.read(page_of(build)).split())
    for fact in (
        build.revision.sha,
        build.build_id,
        "make defconfig",
        "then lab, then gone, then its own lines",
        "CONFIG_KEXEC_FILE=y",
        "No fragment has this name any more.",
        "gcc (Debian) 12.2.0",
        "612 s",
        "mm: Fix a comment",
        "No attempt yet.",
    ):
        assert fact in text
    assert text.count("same code as") == 1


def test_configuration_that_was_edited_since_is_called_that(reader: Reader) -> None:
    assert "edited since" in reader.read(page_of(made_build()))
    assert "edited since" not in reader.read(page_of(build_build()))


def test_removed_file_has_no_link_and_says_why(reader: Reader) -> None:
    build = made_build()
    text = reader.read(page_of(build))
    assert "1 of its 6 files was removed" in text
    assert "not used for 30 days" in text
    assert f"{page_of(build)}files/system-map/" not in text
    assert f"{page_of(build)}files/config/" in text


def test_expired_kernel_says_that_its_files_are_gone(reader: Reader) -> None:
    build = build_build()
    build.advance(Build.State.EXPIRED, because("its image is damaged"))
    assert "The files of this kernel are gone: its image is damaged." in " ".join(reader.read(page_of(build)).split())


def test_failed_build_shows_its_first_error_first_and_who_is_to_blame(reader: Reader) -> None:
    series = broken_build()
    failed = Build.objects.get(state=Build.State.FAILED)
    Build.objects.filter(pk=failed.pk).update(first_error="mm/memory.c:4051:9: error: implicit declaration\n  4051 |")
    text = reader.read(page_of(failed))
    assert text.index("First error") < text.index("<dl")
    assert "mm/memory.c:4051:9: error: implicit declaration" in text
    assert "the series breaks the build" in text
    assert f'href="/series/{series.pk}/"' in text
    page = reader.read(f"/series/{series.pk}/kernels/")
    assert "First error of build" in page
    assert "the series breaks the build" in page
    assert f'href="/builds/{failed.pk}/"' in page


def test_kernel_given_up_for_our_reasons_blames_nobody(reader: Reader) -> None:
    build = build_build(state=Build.State.FAILED, given_up=True, reason="8 attempts without progress")
    text = reader.read(page_of(build))
    assert "Given up for a reason of this site" in text
    assert "8 attempts without progress" in text


def test_kernel_lists_its_sessions_and_attempts(reader: Reader, staff: Reader) -> None:
    session = build_session()
    build_attempt(session.base_build, state="done", agent="abcdef0123456789" * 4, host="builder-7.example.org")
    text = reader.read(page_of(session.base_build))
    assert f'href="/sessions/{session.pk}/"' in text
    assert f"build-{session.base_build_id}-1" in text
    # Names of hosts are the lab's own.
    assert "builder-7.example.org" not in text
    assert "builder-7.example.org" in staff.read(page_of(session.base_build))


def test_base_that_many_series_share_names_some_of_them(reader: Reader) -> None:
    base = build_revision()
    for _ in range(12):
        build_series(base=base, head=build_revision(base.tree, base))
    assert reader.read(page_of(build_build(base))).count("base kernel of") == 10


def test_text_files_are_read_in_the_browser_and_obeyed_by_none(client: Client) -> None:
    build = build_build()
    row = store(build, "log", b"<script>alert(1)</script>\n")
    status, content, headers = read(client, build, "log")
    assert (status, content) == (200, b"<script>alert(1)</script>\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in headers["Content-Security-Policy"]
    assert headers["Content-Disposition"].startswith("inline")
    assert headers["ETag"] == f'"{row.sha256}"'
    assert headers["Content-Length"] == str(row.size)


def test_images_and_modules_are_saved_not_shown(client: Client) -> None:
    build = build_build()
    store(build, "modules", b"\x1f\x8b\x00")
    status, content, headers = read(client, build, "modules")
    assert (status, content) == (200, b"\x1f\x8b\x00")
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"] == f'attachment; filename="build-{build.pk}-modules"'


def test_file_that_was_fetched_before_is_not_sent_again(client: Client) -> None:
    build = build_build()
    row = store(build, "config", b"CONFIG_64BIT=y\n")
    status, content, _headers = read(client, build, "config", if_none_match=f'"{row.sha256}"')
    assert (status, content) == (304, b"")


@pytest.mark.parametrize("kind", ["image", "nothing"])
def test_file_that_is_not_there_is_gone_or_not_found(client: Client, kind: str) -> None:
    status, content, headers = read(client, build_build(), kind)
    if kind == "image":
        assert (status, headers["X-Content-Type-Options"]) == (410, "nosniff")
        assert b"is not in the store" in content
    else:
        assert status == 404


def test_removed_file_is_gone_even_while_another_build_has_the_same(client: Client) -> None:
    build = build_build()
    row = store(build, "log", b"same\n")
    Artifact.objects.filter(pk=row.pk).update(removed_at=build.created_at)
    status, content, _headers = read(client, build, "log", if_none_match=f'"{row.sha256}"')
    assert status == 410
    assert b"was removed" in content


def test_damaged_file_is_not_sent_whole(client: Client, settings: Settings) -> None:
    build = build_build()
    row = store(build, "log", b"good bytes\n")
    stored = next(path for path in Path(settings.STATE_DIR).rglob("*") if path.is_file())
    stored.chmod(0o644)
    stored.write_bytes(b"evil bytes\n")
    response = client.get(f"{page_of(build)}files/log/")
    with pytest.raises(Exception, match="damaged"):
        response.getvalue()
    assert row.size == 11
