"""The page of one series, from its first mail to its report."""

import json
import re

import pytest

from server.builds.models import Build
from server.core.models import Transition
from server.lab.models import Session
from server.reports.models import Report
from server.sources.models import MailingList, Message, Patch, Series
from tests.builders import because, build_finding, build_machine, build_revision, build_series, build_session
from tests.dashboard.conftest import Reader
from tests.scenarios import broken_build, erms_regression, half_measured

pytestmark = pytest.mark.django_db


def page_of(series: Series) -> str:
    return f"/series/{series.pk}/"


@pytest.mark.parametrize("path", ["/series/1/", "/series/99999999999999999999/"])
def test_unknown_series_is_not_found(reader: Reader, path: str) -> None:
    assert "404" in reader.read(path, status=404)


def test_series_that_waits_for_mails_shows_what_it_has(reader: Reader) -> None:
    text = reader.read_series(build_series(state=Series.State.INCOMPLETE, total=3).pk)
    for sentence in ("Not judged yet.", "No session is planned yet.", "No build is wanted yet.", "not applied yet"):
        assert sentence in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_fingerprint_has_a_column_for_each_uarch_and_the_worst_case_first(reader: Reader) -> None:
    text = reader.read(page_of(erms_regression()))
    picture = text[text.index('class="fingerprint') :]
    assert picture.index("fault-4k") < picture.index("copy-4k")
    for uarch in ("haswell", "zen3"):
        assert f">{uarch}</bdi>" in picture
    assert "1.71x slower" in text
    assert re.search(r"\[1\.\d{3}, 1\.\d{3}\]", picture)
    assert "would have seen" in picture


@pytest.mark.usefixtures("virtual_verdicts")
def test_every_verdict_has_a_word_and_a_sign_beside_its_colour(reader: Reader) -> None:
    text = reader.read(f"{page_of(erms_regression())}figures/")
    for sign, word in (("✗", "regressed"), ("=", "no change"), ("?", "inconclusive")):
        assert f'<span aria-hidden="true">{sign}</span>&nbsp;{word}' in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_absolute_figures_stand_beside_the_ratio(reader: Reader) -> None:
    text = reader.read(f"{page_of(erms_regression())}figures/")
    assert '<td class="figure">5811.0</td>' in text
    assert '<td class="figure">9932.0</td>' in text
    assert "+70.9\xa0%" in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_charts_hold_every_boot_in_order_without_its_warm_up(reader: Reader) -> None:
    text = reader.read(f"{page_of(erms_regression())}boots/")
    found = re.search(r'<script id="chart-data" type="application/json">(.*?)</script>', text)
    assert found is not None
    charts = json.loads(found[1])
    assert len(charts) == 5 * 5
    assert {chart["boots"] for chart in charts} == {8}
    for chart in charts:
        assert [dot["position"] for dot in chart["dots"]] == list(range(8))
        assert [dot["arm"][0] for dot in chart["dots"]] == list("bppbbppb")
        assert all(len(dot["values"]) == 5 for dot in chart["dots"])
        assert f'data-chart="{chart["id"]}"' in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_table_under_the_charts_holds_warm_up_values_and_medians(reader: Reader) -> None:
    text = reader.read(f"{page_of(erms_regression())}boots/")
    assert "Warm-up, not judged" in text
    assert "9932.0  9932.0  9932.0  9932.0  9932.0" in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_mail_is_shown_as_it_was_sent(reader: Reader) -> None:
    series = erms_regression()
    text = reader.read(f"{page_of(series)}mail/")
    mail = text[text.index('<pre class="mail"') :]
    mail = mail[: mail.index("</pre>")]
    assert "Subject: Re: [PATCH 0/2] x86/mm: Clear pages twice with ERMS" in mail
    assert f"In-Reply-To: &lt;{series.root_message_id}&gt;" in mail
    assert "accepted by the mail server" in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_report_that_was_not_written_says_why_and_shows_no_mail(reader: Reader) -> None:
    series = erms_regression()
    Report.objects.update(state=Report.State.REFUSED, reason="half of the matrix failed", body="")
    text = reader.read(f"{page_of(series)}mail/")
    assert "half of the matrix failed" in text
    assert '<pre class="mail"' not in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_history_names_every_state_change_with_the_id_of_the_logs(reader: Reader) -> None:
    series = erms_regression()
    text = reader.read(f"{page_of(series)}history/")
    history = text[text.index('id="history"') :]
    assert history.count("<tr") - 1 == Transition.objects.count()
    assert history.count(series.trace) >= Transition.objects.filter(trace=series.trace).count()
    assert f"trace={series.trace}" in history


@pytest.mark.usefixtures("virtual_verdicts")
def test_page_of_virtual_results_says_that_they_are_no_evidence(reader: Reader) -> None:
    assert "they say nothing about the speed of hardware" in reader.read(page_of(erms_regression()))


def test_virtual_results_that_are_only_stored_are_not_promised_a_verdict(reader: Reader) -> None:
    series = build_series()
    build_session(series, build_machine(virtual=True), state=Session.State.DONE)
    text = reader.read(page_of(series))
    assert "Not judged: virtual machines are no evidence" in text
    assert "virtual, not evidence" in text


def test_page_with_physical_and_virtual_machines_marks_the_virtual_ones(reader: Reader) -> None:
    series = build_series()
    build_session(series, build_machine("vm-1", virtual=True))
    build_session(series, build_machine("bench-1", "zen3"))
    text = reader.read(f"{page_of(series)}sessions/")
    assert "Machines with this mark are virtual" in text
    assert text.count('<span class="mark">virtual</span>') == 1


def test_page_without_virtual_machines_has_no_mark(reader: Reader) -> None:
    series = build_series()
    build_session(series, build_machine("bench-1", "zen3"))
    assert "not evidence" not in reader.read(page_of(series))


def test_gap_says_which_machine_and_why(reader: Reader) -> None:
    series = build_series()
    gap = {"machine": "bench-1", "uarch": "zen3", "reason": "two boots of the patched kernel paniced"}
    build_finding(series, "inconclusive", headline="Nothing.", gaps=[gap])
    text = reader.read(page_of(series))
    assert "Not covered" in text
    assert "zen3 bench-1" in text
    assert "two boots of the patched kernel paniced" in text


def test_withdrawn_finding_says_so_at_its_head(reader: Reader) -> None:
    series = build_series()
    finding = build_finding(series, headline="Regressed.")
    assert finding.advance("invalid", because("the base was wrong"))
    text = reader.read(page_of(series))
    assert "withdrawn" in text
    assert "the base was wrong" in text


def test_failed_build_shows_the_end_of_its_log(reader: Reader) -> None:
    series = broken_build()
    text = reader.read(f"{page_of(series)}kernels/")
    assert "implicit declaration of function &#x27;clear_page_thrice&#x27;" in text
    assert "make bzImage ended with 2" in text
    failed = Build.objects.get(state=Build.State.FAILED)
    assert f"End of the log of build {failed.pk} (patched)" in text


def test_build_shared_with_another_series_is_shown_too(reader: Reader) -> None:
    base = build_revision()
    twin = build_revision(base.tree, base)
    first = build_series(base=base, head=twin)
    build_session(first, build_machine("bench-1", "zen3"))
    same_content = build_revision(base.tree, base, tree_sha=twin.tree_sha)
    second = build_series(base=base, head=same_content)
    text = reader.read(f"{page_of(second)}kernels/")
    assert text.count('<th scope="row"><a href="/builds/') == 2
    assert same_content.sha[:12] in text


def test_series_under_way_shows_sessions_and_stages(reader: Reader) -> None:
    series = half_measured()
    assert "0 of 2 machines, 1 of 8 boots measured" in reader.read(page_of(series))
    text = reader.read_series(series.pk)
    assert '<td class="figure">1/4</td>' in text


def test_mails_link_to_the_archive_of_their_list(reader: Reader) -> None:
    series = build_series(root_message_id="20261101.1/a?b@example.org")
    MailingList.objects.update(url="https://lists.example.org/linux-mm/")
    assert "https://lists.example.org/linux-mm/20261101.1%2Fa%3Fb@example.org/" in reader.read(page_of(series))


def test_archive_that_no_browser_opens_gets_no_link(reader: Reader) -> None:
    series = build_series(root_message_id="<a@example.org>")
    MailingList.objects.update(url="javascript:alert(1)//")
    assert "javascript:" not in reader.read(page_of(series))


def test_newer_and_older_version_are_linked(reader: Reader) -> None:
    newer = build_series(version=2, subject="mm: Newer")
    older = build_series(subject="mm: Older", superseded_by=newer)
    assert f'<a href="/series/{newer.pk}/">v2 mm: Newer</a>' in reader.read(page_of(older))
    assert f'<a href="/series/{older.pk}/">v1 mm: Older</a>' in reader.read(page_of(newer))


def test_endless_versions_and_paths_do_not_make_an_endless_page(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.dashboard.rows.postings._MOST_OLDER", 2)
    newer = build_series(version=9, subject="mm: Newer")
    for version in range(1, 6):
        build_series(version=version, subject=f"mm: Older {version}", superseded_by=newer)
    Patch.objects.filter(series=newer).update(trailers=["Link: " + 5000 * "y"])
    Message.objects.filter(patches__series=newer).update(paths=["mm/" + 1000 * "x"])
    text = reader.read_series(newer.pk)
    assert "mm: Older 5" in text
    assert "mm: Older 4" in text
    assert "mm: Older 3" not in text
    assert "And 3 older versions." in text
    assert f"mm/{200 * 'x'}" in text
    assert 300 * "x" not in text
    assert 300 * "y" not in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_cases_that_are_not_drawn_are_counted_and_nothing_is_said_of_them(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.dashboard.rows.charts.MOST_CASES", 1)
    text = " ".join(reader.read(f"{page_of(erms_regression())}boots/").split())
    assert re.search(r"<p>\d+ more cases?: see the sessions\.</p>", text)
