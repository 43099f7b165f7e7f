"""The gallery of pictures: for those who work on the dashboard, and nowhere else."""

import pytest
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from server.dashboard.gallery_page import CROWDED
from server.dashboard.pictures import samples
from tests.dashboard.conftest import Reader
from tests.dashboard.test_browser import chromium, look

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/gallery/", "/gallery/heat_map/"])
def test_site_without_debug_mode_has_no_gallery(reader: Reader, path: str) -> None:
    reader.read(path, 404)


def test_gallery_shows_every_picture_and_keeps_names_text(reader: Reader, settings: Settings) -> None:
    settings.DEBUG = True
    page = reader.read("/gallery/")
    for kind in ("fingerprint", "heat_map", "course", "staircase", "narrowing", "noise_course"):
        assert f'aria-label="{kind}: no data"' in page
        assert f'aria-label="{kind}: one value"' in page
    assert samples.HOSTILE[0] not in page
    assert " style=" not in page


@pytest.mark.parametrize("name", CROWDED)
def test_crowded_pictures_have_pages_of_their_own(reader: Reader, settings: Settings, name: str) -> None:
    settings.DEBUG = True
    assert f'aria-label="{name}: crowded"' in reader.read(f"/gallery/{name}/")


def test_picture_that_is_not_there_is_not_found(reader: Reader, settings: Settings) -> None:
    settings.DEBUG = True
    reader.read("/gallery/mona-lisa/", 404)


@pytest.mark.real(minutes=1)
def test_gallery_draws_in_a_browser(transactional_db: None, live_server: LiveServer, settings: Settings) -> None:
    settings.DEBUG = True
    with chromium() as browser:
        for width in (360, 1400):
            page = browser.new_page(viewport={"width": width, "height": 900})
            assert look(page, f"{live_server.url}/gallery/", "gallery") == []
            assert page.locator("figure.course canvas").count() > 0
            page.close()


@pytest.mark.real(minutes=1)
def test_lanes_zoom_together_and_name_the_commit(
    transactional_db: None, live_server: LiveServer, settings: Settings
) -> None:
    settings.DEBUG = True
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"{live_server.url}/gallery/course/")
        over = page.locator(".u-over").first
        over.hover(position={"x": 300, "y": 40})
        readout = page.locator(".course .readout")
        assert "mm: Change number" in readout.inner_text()
        assert all(f"{name} " in readout.inner_text() for name in ("haswell", "zen3", "zen5"))
        box = over.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 200, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, box["y"] + 40, steps=5)
        page.mouse.up()
        button = page.get_by_role("button", name="Show all revisions")
        button.wait_for(state="visible")
        button.click()
        button.wait_for(state="hidden")


@pytest.mark.real(minutes=1)
def test_pictures_need_no_scripts(transactional_db: None, live_server: LiveServer, settings: Settings) -> None:
    settings.DEBUG = True
    with chromium() as browser:
        page = browser.new_context(java_script_enabled=False).new_page()
        page.goto(f"{live_server.url}/gallery/")
        assert page.locator(".course svg.plot polyline.middle").count() > 0
        folded = page.locator(".fingerprint tbody", has_text="folio_copy 0→0").first
        assert not folded.locator(".line").first.is_visible()
        folded.locator("input").check()
        assert folded.locator(".line").first.is_visible()
