"""What the lab does now and until when: machines in one line each, expected times, and the parts that renew."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from server.builds.models import Build
from server.core import clock
from server.detection.models import MachineQuestion
from server.detection.noise.questions import open_question
from server.lab.models import Attempt, Boot, BootStart, Machine, Session
from server.sources.models import Series
from tests.builders import (
    build_attempt,
    build_boot,
    build_build,
    build_builder,
    build_health_session,
    build_list,
    build_machine,
    build_power_cycle,
    build_series,
    build_session,
    build_tree,
)
from tests.dashboard.conftest import MISSPELT, Reader
from tests.lab_scenarios import busy_lab
from tests.scenarios import erms_regression

pytestmark = pytest.mark.django_db

ASK_NO_MORE = 286


@pytest.fixture(autouse=True)
def jenkins(settings: Settings) -> None:
    """The local dispatcher shares this host among all machines."""
    settings.DISPATCHER = "jenkins"


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def line_of(text: str, machine: str) -> str:
    return words(text.split(f">{machine}</a>")[1].split("</tr>", maxsplit=1)[0])


def measured_at(machine: Machine, *, minutes_a_boot: float) -> None:
    """It booted four kernels lately, each in so many minutes."""
    now = clock.now()
    session = build_session(build_series(), machine, state=Session.State.DONE)
    began, ended = now - timedelta(minutes=60 + 4 * minutes_a_boot), now - timedelta(minutes=60)
    attempt = build_attempt(session, state=Attempt.State.DONE, agent="a" * 64, arrived_at=began)
    Attempt.objects.filter(pk=attempt.pk).update(state_since=ended)
    for boot in session.boots.all():
        BootStart.objects.create(boot=boot, attempt=attempt)


def running(machine: Machine, *, measured: int, boots: int, looks: list[int]) -> Session:
    session = build_session(build_series(subject="mm: Under way"), machine, state=Session.State.RUNNING, looks=looks)
    session.boots.all().delete()
    for position in range(boots):
        build_boot(
            session, position, ["base", "patched", "patched", "base"][position % 4], measured=position < measured
        )
    build_attempt(session, agent="b" * 64, progress="boot 2: mm-basic")
    return session


def test_sick_machines_come_first_with_a_sentence_and_what_to_do(reader: Reader) -> None:
    build_machine("idle-1", "zen1")
    build_machine("gone-1", "zen2", health="retired", health_reason="its board died")
    busy = build_machine("busy-1", "zen3", state=Machine.State.WORKING)
    running(busy, measured=1, boots=4, looks=[2])
    build_machine("sick-1", "zen5", health="quarantined", health_reason="3 boots lost in a row")
    build_machine("hand-1", "zen4", health="maintenance", health_reason="new memory")
    build_machine("lost-1", "haswell", state=Machine.State.OFFLINE, state_reason="its agent is silent")
    text = reader.read("/machines/")
    order = [text.index(f">{name}</a>") for name in ("sick-1", "lost-1", "hand-1", "busy-1", "idle-1", "gone-1")]
    assert order == sorted(order)
    assert "3 boots lost in a row" in line_of(text, "sick-1")
    assert "have it checked or release it" in line_of(text, "sick-1")
    assert "look at its power, its network and its agent" in line_of(text, "lost-1")
    assert "Whoever has it releases it" in line_of(text, "hand-1")
    assert "1 of 4 boots" in line_of(text, "busy-1")
    assert "nothing waits for it" in line_of(text, "idle-1")
    assert "its board died" in text.split("1 retired")[1]
    for count in ("3 out of service", "1 busy", "1 idle", "1 retired"):
        assert count in words(text)


def test_advice_follows_what_is_already_done_about_it(reader: Reader) -> None:
    build_health_session(build_machine("checked-1", "zen3", health="quarantined", health_reason="it drifts"))
    build_machine("held-1", "zen3", health="quarantined", health_reason="it drifts", health_hold="ada looks at it")
    build_power_cycle(build_machine("cycled-1", "zen3", health="quarantined"))
    build_machine("off-1", "zen3", enabled=False)
    build_machine("new-1", "zen3", health="unknown")
    text = reader.read("/machines/")
    assert "A health session comes first" in line_of(text, "checked-1")
    assert "Ada looks at it; or a person releases it" in line_of(text, "held-1")
    assert "It is to be switched off and on" in line_of(text, "cycled-1")
    assert "a person took it out of use" in line_of(text, "off-1")
    assert "to be checked" in line_of(text, "new-1")


def test_idle_machine_with_work_says_what_the_work_waits_for(reader: Reader) -> None:
    build_session(machine=build_machine("next-1", "zen3"))
    needy = build_session(machine=build_machine("needy-1", "zen3"))
    Session.objects.filter(pk=needy.pk).update(needs=["cxl"])
    text = reader.read("/machines/")
    assert "1 session waits: the first goes with the next round" in line_of(text, "next-1")
    assert "needy-1 has no cxl" in line_of(text, "needy-1")


def test_suspect_machine_is_told_in_the_words_of_its_own_page(reader: Reader) -> None:
    build_machine("calm")
    machine = build_machine("drifting")
    open_question("drift:1", MachineQuestion.Kind.DRIFT, machine, "equal kernels differ by 3.1 %")
    listed = reader.read("/machines/")
    sentence = "suspect drift equal kernels differ by 3.1 %"
    assert sentence in line_of(listed, "drifting")
    assert "suspect" not in line_of(listed, "calm")
    assert "1 suspect" in words(listed)
    assert sentence in words(reader.read("/machines/drifting/"))


def test_site_without_machines_says_how_one_is_added(reader: Reader) -> None:
    assert "docs/operations/add-a-machine.md" in reader.read("/machines/")


def test_end_of_a_running_session_is_told_from_boots_that_were_measured(reader: Reader) -> None:
    machine = build_machine("bench-1", "zen3", state=Machine.State.WORKING)
    measured_at(machine, minutes_a_boot=10)
    session = running(machine, measured=1, boots=4, looks=[2, 4])
    text = words(reader.read(f"/sessions/{session.pk}/"))
    # Three boots of ten minutes, and four more if the first look leaves doubt.
    assert re.search(r"1 of 4 boots ended · these are through about [0-9: -]+ , in (29|30) min", text)
    assert re.search(r"all looks by [0-9: -]+ , in 1 h", text)
    assert "by its boots of the last 7 days" in text
    assert re.search(r", in (29|30) min", line_of(reader.read("/machines/"), "bench-1"))


def test_boot_that_runs_shortens_what_is_left(reader: Reader) -> None:
    machine = build_machine("bench-1", "zen3", state=Machine.State.WORKING)
    measured_at(machine, minutes_a_boot=10)
    session = running(machine, measured=3, boots=4, looks=[2])
    begun = clock.now() - timedelta(minutes=4)
    Boot.objects.filter(session=session, position=3).update(state=Boot.State.RUNNING, started_at=begun)
    assert re.search(r"through about [0-9: -]+ , in 5 min", words(reader.read(f"/sessions/{session.pk}/")))
    Boot.objects.filter(session=session, position=3).update(started_at=begun - timedelta(hours=1))
    assert "any moment" in words(reader.read(f"/sessions/{session.pk}/"))


def test_without_any_measured_duration_times_are_called_rough(reader: Reader) -> None:
    build_session(machine=build_machine("bench-1", "zen3"))
    assert "no session has ended lately, so all times are rough" in words(reader.read("/queue/"))


def test_empty_queue_says_no_more_than_that(reader: Reader) -> None:
    text = words(reader.read("/queue/"))
    assert "No work is planned." in text
    assert "rough" not in text
    assert "every planned session" not in text
    build_tree("mm", enabled=True)
    assert "The tree mm is not polled yet. Check that the workers run." in words(reader.read("/queue/"))


def test_queue_of_a_machine_is_laid_end_to_end_behind_what_runs(reader: Reader) -> None:
    machine = build_machine("bench-1", "zen3", state=Machine.State.WORKING)
    measured_at(machine, minutes_a_boot=10)
    running(machine, measured=2, boots=4, looks=[2])
    first, second = (build_session(build_series(subject=f"mm: Wait {n}"), machine) for n in (1, 2))
    build_session(build_series(subject="mm: Elsewhere"), build_machine("bench-9", "zen4"))
    text = reader.read("/queue/?machine=bench-1")
    rows = [words(text.split(f">session {one.pk}</a>")[1].split("</tr>")[0]) for one in (first, second)]
    assert re.search(r"place 1 .*in (19|20) min .*in (59|60) min|place 1 .*in (19|20) min .*in 1 h", rows[0])
    assert re.search(r"place 2 .*in (59|60) min|place 2 .*in 1 h", rows[1])
    assert "mm: Elsewhere" not in text
    assert "mm: Under way" in text


def test_series_is_judged_when_its_last_machine_is_through(reader: Reader) -> None:
    slow, fast = build_machine("slow-1", "zen3"), build_machine("fast-1", "zen5")
    measured_at(slow, minutes_a_boot=20)
    measured_at(fast, minutes_a_boot=1)
    series = build_series(subject="mm: Judge me")
    build_session(series, fast)
    build_session(series, slow)
    section = words(reader.read("/queue/").split('id="answers"')[1].split("</section>")[0])
    assert re.search(r"mm: Judge me [0-9: -]+ , in 1 h . 2", section)
    assert re.search(r"mm: Judge me [0-9: -]+ , in 1 h", words(reader.read(f"/queue/?series={series.pk}")))


def test_series_that_needs_a_sick_machine_has_no_time_but_a_reason(reader: Reader) -> None:
    sick = build_machine("sick-1", "zen3", health="quarantined", health_reason="3 boots lost")
    series = build_series(subject="mm: Judge me")
    build_session(series, sick)
    section = words(reader.read("/queue/").split('id="answers"')[1].split("</section>")[0])
    assert "mm: Judge me sick-1: quarantined: 3 boots lost not known" in section
    line = words(reader.read(f"/series/{series.pk}/progress/"))
    assert "waits: sick-1: quarantined: 3 boots lost" in line
    assert "judged about" not in line


def test_builds_are_laid_on_the_room_of_their_builders(reader: Reader) -> None:
    build_builder("b-1", capacity=1)
    build_attempt(build_build(state=Build.State.RUNNING), builder=build_builder("b-1"), progress="compiling")
    waiting = build_build(state=Build.State.WANTED)
    text = reader.read("/queue/")
    assert "compiling" in text
    assert re.search(r"in \d+ min", words(text.split(f">build {waiting.pk}</a>")[1].split("</tr>")[0]))
    line = words(reader.read(f"/builds/{waiting.pk}/progress/"))
    assert "place 1 among the builds that wait : b-1 makes 1 of at most 1 builds" in line


def test_null_dispatcher_promises_no_times(reader: Reader, settings: Settings) -> None:
    settings.DISPATCHER = "null"
    session = build_session(machine=build_machine("bench-1", "zen3"))
    build_build(state=Build.State.WANTED)
    text = words(reader.read("/queue/"))
    assert "hands nothing out" in text
    assert not re.search(r"in \d+ (min|h)\b", text)
    assert "hands nothing out" in line_of(reader.read("/machines/"), "bench-1")
    assert "hands nothing out" in words(reader.read(f"/sessions/{session.pk}/"))


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("machine=nobody", "There is no machine “nobody”"),
        ("tree=nobody", "There is no tree “nobody”"),
        ("series=abc", "“abc” is no number of a series."),
        ("series=99999999999999999999", "is no number of a series"),
        ("series=%00&tree=%00&machine=%00", "is no number of a series"),
    ],
)
def test_filters_that_name_nothing_are_said(reader: Reader, query: str, sentence: str) -> None:
    build_session(machine=build_machine("bench-1", "zen3"))
    for path in ("/queue/", "/live/queue/"):
        text = reader.read(f"{path}?{query}")
        assert "bench-1" in text
    assert sentence in reader.read(f"/queue/?{query}")


@pytest.mark.usefixtures("virtual_verdicts")
def test_parts_say_when_nothing_will_change_any_more(client: Client) -> None:
    series = erms_regression()
    session = series.sessions.first()
    assert session is not None
    paths = [
        f"/sessions/{session.pk}/progress/",
        f"/series/{series.pk}/progress/",
        f"/builds/{session.base_build_id}/progress/",
    ]
    for path in paths:
        response = client.get(path)
        assert response.status_code == ASK_NO_MORE, path
        assert MISSPELT not in response.content.decode()
    open_one = build_session(build_series(), build_machine("bench-1", "zen3"))
    for path in (f"/sessions/{open_one.pk}/progress/", f"/series/{open_one.series_id}/progress/", "/live/machines/"):
        assert client.get(path).status_code == 200, path
    held = build_series(state=Series.State.HELD)
    assert client.get(f"/series/{held.pk}/progress/").status_code == ASK_NO_MORE


@pytest.mark.parametrize("kind", ["sessions", "series", "builds"])
def test_parts_of_unknown_things_are_not_found(client: Client, kind: str) -> None:
    assert client.get(f"/{kind}/999999/progress/").status_code == 404
    assert client.get("/machines/nobody/now/").status_code == 404


def test_pages_ask_for_their_parts_only_while_something_is_under_way(reader: Reader) -> None:
    over = build_session(build_series(), build_machine("bench-1", "zen3"), state=Session.State.DONE)
    waits = build_session(build_series(), build_machine("bench-2", "zen5"))
    assert f'hx-get="/sessions/{waits.pk}/progress/"' in reader.read(f"/sessions/{waits.pk}/")
    text = reader.read(f"/sessions/{over.pk}/")
    assert "hx-get" not in text
    assert "htmx" not in text


def test_log_of_the_running_boot_is_for_people_of_the_lab(reader: Reader, staff: Reader) -> None:
    machine = busy_lab()
    session = Session.objects.get(machine=machine, state=Session.State.RUNNING)
    Attempt.objects.filter(session=session).update(log="the password of the console\n" * 4000)
    assert "the password" not in reader.read(f"/sessions/{session.pk}/")
    reader.read(f"/sessions/{session.pk}/log/", status=404)
    assert "the password" in staff.read(f"/sessions/{session.pk}/")
    assert 0 < len(staff.read(f"/sessions/{session.pk}/log/")) < 40_000


def test_series_on_its_way_tells_boots_and_the_expected_answer(reader: Reader) -> None:
    machine = build_machine("bench-1", "zen3", state=Machine.State.WORKING)
    measured_at(machine, minutes_a_boot=10)
    session = running(machine, measured=2, boots=4, looks=[2, 4])
    assert f'hx-get="/series/{session.series_id}/progress/"' in reader.read(f"/series/{session.series_id}/")
    line = words(reader.read(f"/series/{session.series_id}/progress/"))
    assert "2 of 4 boots measured" in line
    assert re.search(r"judged about [0-9: -]+ , in (19|20) min, by [0-9: -]+ , in (59 min|1 h) if all looks", line)


def test_machine_page_says_what_it_does_and_what_comes_next(reader: Reader) -> None:
    mailing_list = build_list("linux-mm", tree=build_tree("mm"))
    machine = build_machine("bench-1", "zen3", state=Machine.State.WORKING)
    measured_at(machine, minutes_a_boot=10)
    running(machine, measured=2, boots=4, looks=[2])
    build_session(build_series(mailing_list, subject="mm: Come next"), machine)
    for path in ("/machines/bench-1/", "/machines/bench-1/now/"):
        text = words(reader.read(path))
        assert "2 of 4 boots" in text
        assert re.search(r"Next: session \d+ , mm: Come next: begins about [0-9: -]+ , in (19|20) min", text)
