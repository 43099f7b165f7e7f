"""Measured error rates, and how they are shown."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from server.detection.models import MachineQuestion, Verdict
from server.detection.noise.profiles import (
    alarm_rate,
    alarm_rates,
    noise_of_machine,
    open_questions,
    question_rows,
    questions_of,
    refresh_profiles,
    wilson,
)
from server.detection.noise.questions import answer_question, open_question
from server.lab.models import Machine
from tests.builders import build_machine
from tests.detection.noise.shown import shown_trial

pytestmark = pytest.mark.django_db


def noisy(name: str, trials: int, alarms: int, *, virtual: bool = False) -> Machine:
    machine = build_machine(name, virtual=virtual)
    for number in range(trials):
        verdict = Verdict.REGRESSED if number < alarms else Verdict.UNCHANGED
        shown_trial(machine, {"copy": 0.03 * (-1) ** number}, night=number, verdict=verdict)
    refresh_profiles(machine)
    return machine


def told(*arguments: str) -> list[str]:
    out = StringIO()
    call_command("noise", *arguments, stdout=out)
    return out.getvalue().splitlines()


def test_the_interval_of_a_rate_is_wilson_s() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(10, 10)[1] == 1.0


def test_rates_are_of_one_machine_of_each_or_of_the_site() -> None:
    one, _two = noisy("one", 4, 1), noisy("two", 4, 0)
    rate = alarm_rate(one)
    assert (rate.machine, rate.comparisons, rate.false_alarms, rate.rate) == ("one", 4, 1, 0.25)
    site = alarm_rate()
    assert (site.comparisons, site.false_alarms, site.rate) == (8, 1, 0.125)
    assert (site.low, site.high) == pytest.approx(wilson(1, 8))
    assert [(rate.machine, rate.rate) for rate in alarm_rates()] == [("one", 0.25), ("two", 0.0)]


def test_a_site_without_a_trial_has_no_rate() -> None:
    rate = alarm_rate()
    assert (rate.comparisons, rate.rate, rate.low) == (0, None, None)
    assert told() == [
        "machine       uarch  A/A comparisons  false alarms  rate  95 % interval  p <= 0.05",
        "all physical  -      0                0             -     -              0",
    ]


def test_what_virtual_machines_show_is_told_with_that_word_and_not_counted_with_the_others() -> None:
    noisy("guest", 4, 4, virtual=True)
    noisy("one", 4, 0)
    assert (alarm_rate().comparisons, alarm_rate().false_alarms) == (4, 0)
    _head, guest, one, site = told()
    assert guest.split()[:5] == ["guest", "(virtual)", "haswell", "4", "4"]
    assert one.split()[:4] == ["one", "haswell", "4", "0"]
    assert site.split()[:5] == ["all", "physical", "-", "4", "0"]


def test_a_cell_s_minimum_effect_follows_its_noise_once_enough_is_known() -> None:
    ((few,), _), ((enough,), _) = noise_of_machine(noisy("few", 7, 0)), noise_of_machine(noisy("enough", 19, 0))
    assert few.min_effect == 0.01
    assert enough.min_effect == enough.change_95 == pytest.approx(0.0305, abs=1e-4)


def test_the_command_prints_rates_of_machines_and_noise_of_cells() -> None:
    noisy("one", 19, 1)
    assert told()[1].split() == ["one", "haswell", "19", "1", "5.26", "%", "0.94", "%", "to", "24.64", "%", "0"]
    (line,) = told("one")[1:]
    assert line.replace(" %", "%").split() == [
        *("mm-basic/copy", "time", "all", "19", "1", "0"),
        *("3.05%", "0.55%", "1.20%", "3.05%"),
    ]


def test_the_command_names_the_machines_there_are() -> None:
    build_machine("one")
    with pytest.raises(CommandError, match="no machine 'two'; there are: one"):
        told("two")


def test_questions_are_shown_open_ones_first() -> None:
    machine = build_machine()
    for number in range(3):
        open_question(f"event:{number}", MachineQuestion.Kind.EVENT, machine, f"event {number}")
    answer_question(MachineQuestion.objects.get(key="event:2"), "ada", "firmware")
    shown = question_rows(questions_of(machine))
    assert [(row.detail, row.reason) for row in shown] == [("event 1", ""), ("event 0", ""), ("event 2", "firmware")]
    assert [row.detail for row in question_rows(open_questions(1))] == ["event 1"]
    assert shown[0].state_label == "to be looked at"
