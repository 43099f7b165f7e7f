"""How a machine was set, on the page of its session."""

import pytest

from server.dashboard.rows.machine_facts import differing_settings, readable_settings
from tests.builders import tell_boots
from tests.dashboard.conftest import Reader
from tests.scenarios import erms_regression

GOVERNOR = {
    "name": "governor",
    "wanted": "performance",
    "before": "schedutil",
    "after": "performance",
    "outcome": "set",
}
SWAP = {"name": "swap", "wanted": "off", "before": "on", "after": "on", "outcome": "tolerated", "note": "it is needed"}


@pytest.mark.django_db
@pytest.mark.usefixtures("virtual_verdicts")
def test_settings_of_the_first_measured_boot_are_shown_and_differences_named(reader: Reader) -> None:
    session = erms_regression().sessions.get(machine__name="vm-zen3")
    tell_boots(session.boots.all(), conditions={"settings": [GOVERNOR, SWAP]})
    tell_boots(session.boots.filter(position=3), conditions={"settings": [GOVERNOR, {**SWAP, "after": "off"}]})
    text = reader.read(f"/sessions/{session.pk}/")
    section = text[text.index('id="settings"') :]
    assert section.index("schedutil") < section.index("it is needed")
    assert "The boots disagree in: swap." in section


@pytest.mark.django_db
@pytest.mark.usefixtures("virtual_verdicts")
def test_session_without_conditions_has_no_such_section(reader: Reader) -> None:
    session = erms_regression().sessions.get(machine__name="vm-zen3")
    assert 'id="settings"' not in reader.read(f"/sessions/{session.pk}/")


@pytest.mark.parametrize("told", [None, [], "x", {"x": "x"}, [1, None, {"case": "copy"}]])
def test_whatever_an_agent_sent_breaks_no_page(told: object) -> None:
    assert readable_settings(told) == ()
    assert differing_settings([told, [GOVERNOR]]) == ("governor",)


def test_texts_and_rows_have_an_end() -> None:
    rows = readable_settings([{"name": "x" * 9999}] * 500)
    assert (len(rows), len(rows[0].name)) == (100, 300)
