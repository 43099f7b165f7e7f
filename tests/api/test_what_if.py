"""What so many boots on a machine would show, by the noise that it had."""

import csv
import io
import statistics
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse

from server import stats
from server.detection.models import NoiseProfile
from server.detection.noise.profiles import FEW_CHANGES, NO_SPREAD
from tests.builders import EPOCH, build_case, build_machine, build_metric

pytestmark = pytest.mark.django_db


def profile(case: str = "fault-4k", **fields: Any) -> NoiseProfile:
    machine = build_machine("zen3-1", "zen3", virtual=False)
    core_type, _ = machine.core_types.get_or_create(name="all")
    known = {"comparisons": 9, "false_alarms": 0, "rejections": 0, "change_95": 0.01, "boot_sd": 0.01, "last_at": EPOCH}
    known |= {"changes": [0.001] * 9, **fields}
    cell = {"case": build_case(case), "metric": build_metric(), "core_type": core_type}
    return NoiseProfile.objects.create(machine=machine, **cell, **known)


def ask(client: Client, **query: Any) -> Any:
    return client.get(reverse("api-what-if"), {"machine": "zen3-1", "boots": 4, **query})


def test_more_boots_show_less_down_to_the_minimum_effect(client: Client) -> None:
    profile()
    seen = [ask(client, boots=boots).json()["cells"][0]["mde"] for boots in (2, 4, 16, 1000)]
    assert seen == sorted(seen, reverse=True)
    # (1 + 0.01) exp(t[6] 0.01 sqrt(2/4) * 1.379) - 1, by hand.
    assert seen[1] == pytest.approx(0.0344, abs=2e-4)
    assert 0.01 < seen[3] < 0.0115


def test_it_is_what_a_comparison_of_such_boots_says_of_itself() -> None:
    noise = np.random.default_rng(7)
    cells = [
        stats.Cell(
            base=[[value] for value in np.exp(noise.normal(0, 0.01, 6)).tolist()],
            patched=[[value] for value in np.exp(noise.normal(0, 0.01, 6)).tolist()],
            better="lower",
            min_effect=0.01,
        )
        for _ in range(60)
    ]
    told = statistics.median(one.mde for one in stats.compare(cells) if one.mde is not None)
    assert stats.foreseen(boot_sd=0.01, boots=6, min_effect=0.01) == pytest.approx(told, rel=0.2)


def test_a_noisy_cell_keeps_its_own_minimum_effect(client: Client) -> None:
    profile(changes=[0.08] * 20, boot_sd=0.0)
    (cell,) = ask(client).json()["cells"]
    assert cell["mde"] == pytest.approx(cell["min_effect"])
    assert cell["min_effect"] > 0.08


def test_what_is_not_known_is_said(client: Client) -> None:
    build_machine("zen3-1", "zen3", virtual=False)
    told = ask(client).json()
    assert (told["cells"], told["evidence"]) == ([], True)
    assert told["statement"].startswith("Nothing is known")
    profile(boot_sd=None)
    profile("fault-2m", changes=[0.001])
    told = ask(client).json()
    assert {cell["case"]: (cell["mde"] is None, cell["statement"]) for cell in told["cells"]} == {
        "fault-4k": (True, NO_SPREAD),
        "fault-2m": (False, FEW_CHANGES),
    }
    assert not told["statement"].startswith("Nothing is known")


def test_cells_are_chosen_and_told_as_a_table(client: Client) -> None:
    profile()
    profile("fault-2m")
    answer = ask(client, case="fault-2m", format="csv", fields="machine,boots,case,mde")
    head, *lines = csv.reader(io.StringIO(answer.content.decode()))
    assert head == ["machine", "boots", "case", "mde"]
    assert [line[:3] for line in lines] == [["zen3-1", "4", "fault-2m"]]
    assert ask(client, page_size=1).json()["next"]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ({"boots": 1}, "boots"),
        ({"boots": 1001}, "boots"),
        ({"boots": "4.5"}, "boots"),
        ({"boots": ""}, "boots"),
        ({"machine": ""}, "machine"),
        ({"machine": "zen9"}, "machine"),
        ({"case": "fault"}, "case"),
        ({"uarch": "zen3"}, "uarch"),
    ],
)
def test_what_cannot_be_asked_is_told(client: Client, query: dict[str, Any], name: str) -> None:
    profile()
    answer = ask(client, **query)
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [name]
