"""Codes by which hosts come into the lab: made by a person, used once, refused in plain words."""

import json
import re
from datetime import timedelta
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.access.tokens import find_token
from server.core.models import ApiToken
from server.lab import care
from server.lab.hosts.enrolments import MOST_WRONG, Code, make_code
from server.lab.hosts.health import judge_health
from server.lab.hosts.state import change_health, is_in_hands
from server.lab.models import Enrolment, Machine
from tests.builders import (
    build_builder,
    build_config,
    build_health_session,
    build_machine,
    build_toolchain,
    build_uarch,
)

pytestmark = pytest.mark.django_db
FACTS = {"uarch": "zen3", "arch": "x86_64", "model_name": "AMD Ryzen 7 5800X", "cpus": 16, "virtual": False}


@pytest.fixture(autouse=True)
def _pull(settings: Settings) -> None:
    settings.DISPATCHER = "pull"


def command(*words: str) -> str:
    out = StringIO()
    call_command("enrol_machine", *words, stdout=out)
    return out.getvalue()


def code_for(*words: str) -> str:
    return str(re.findall(r"[A-Z2-9]{4}(?:-[A-Z2-9]{4}){3}", command(*words, "--by", "ada"))[0])


def show(code: str, status: int = 200, **facts: Any) -> dict[str, Any]:
    body = {"code": code, "version": "0.2", "host": "desk", "facts": {**FACTS, **facts}}
    answer = Client().post("/api/v1/enrolments/", json.dumps(body), "application/json")
    assert answer.status_code == status, answer.content
    told: dict[str, Any] = answer.json()
    return told


def desk() -> Machine:
    return build_machine("desk-1", "zen3", boot_driver="kexec")


def test_code_is_exchanged_once_for_the_token_and_a_person_sees_what_came() -> None:
    machine = desk()
    code = code_for("desk-1")
    told = show(code.lower().replace("-", " "))
    assert (told["scope"], told["subject"], told["pull"], told["accepted"]) == ("machine", "desk-1", True, False)
    token = find_token(told["token"])
    assert token is not None
    assert (token.scope, token.subject) == (ApiToken.Scope.MACHINE, "desk-1")
    machine.refresh_from_db()
    seen = "enrolled: zen3, AMD Ryzen 7 5800X, x86_64, 16 CPUs, physical"
    assert (machine.health, machine.health_reason.partition(";")[0]) == ("maintenance", seen)
    row = Enrolment.objects.get()
    assert (row.made_by, row.host, row.used_from, code not in row.digest) == ("ada", "desk", "127.0.0.1", True)
    assert "by desk from 127.0.0.1: zen3" in command("--list")


def test_code_that_is_shown_again_opens_nothing_and_tells_who_had_it() -> None:
    desk()
    code = code_for("desk-1")
    first = show(code)
    refused = show(code, 409)
    assert (refused["code"], "by desk" in refused["title"]) == ("code-used", True)
    assert find_token(first["token"]) is not None


def test_code_ends_with_its_time_and_with_the_next_one() -> None:
    desk()
    old, new = code_for("desk-1"), code_for("desk-1")
    assert show(old, 409)["code"] == "code-expired"
    Enrolment.objects.filter(used_at=None).update(expires_at=clock.now() - timedelta(seconds=1))
    assert show(new, 409)["code"] == "code-expired"
    assert not ApiToken.objects.exists()


def test_machine_of_another_kind_is_refused_with_both_named_and_the_code_stays_good() -> None:
    desk()
    code = code_for("desk-1")
    refused = show(code, 409, uarch="zen5")
    assert refused["code"] == "other-uarch"
    assert "for desk-1, a zen3, and its probe says zen5 here" in refused["title"]
    assert "does not know its CPU" in show(code, 409, uarch="unknown")["title"]
    assert show(code)["subject"] == "desk-1"


def test_emulated_machines_and_builders_are_no_kind_of_cpu() -> None:
    build_machine("vm-1", "haswell", boot_driver="qemu")
    builder = build_builder("forge")
    assert show(code_for("vm-1"))["scope"] == "machine"
    # What the probe saw is the host, not what is emulated there.
    assert Machine.objects.get(name="vm-1").health_reason.startswith("enrolled, emulated on zen3, ")
    assert show(code_for("forge"))["scope"] == "builder"
    builder.refresh_from_db()
    assert builder.health == "maintenance"


def test_wrong_codes_come_to_an_end_and_right_ones_do_not_count() -> None:
    desk()
    for _ in range(MOST_WRONG):
        assert show("AAAA-AAAA-AAAA-AAAA", 404)["code"] == "code-unknown"
    assert show("AAAA-AAAA-AAAA-AAAA", 429)["code"] == "too-many-codes"
    assert show(code_for("desk-1"))["subject"] == "desk-1"


@pytest.mark.parametrize("hold", ["", "lifted by two A/A trials"])
def test_quarantine_is_not_lifted_by_coming_again_nor_by_its_own_check(hold: str) -> None:
    machine = desk()
    change_health(machine, "quarantined", "no boot", hold=hold)
    passed = build_health_session(machine, state="done")
    for _ in range(2):
        show(code_for("desk-1"))
    judge_health(passed)
    machine.refresh_from_db()
    assert machine.health == "quarantined"
    assert machine.health_reason.startswith("no boot; enrolled: zen3, AMD Ryzen 7 5800X, ")
    assert machine.health_reason.count("enrolled") == 1
    assert is_in_hands(machine)
    care.release(machine, "seen", actor="ada")
    assert machine.health == "good"


def test_maintenance_of_a_person_keeps_its_reason() -> None:
    machine = desk()
    care.maintain(machine, "a new fan", actor="ben")
    show(code_for("desk-1"))
    machine.refresh_from_db()
    assert machine.health == "maintenance"
    assert machine.health_reason.startswith("a new fan; enrolled: zen3, ")


def test_two_codes_made_at_once_are_one_that_is_good(transactional_db: None) -> None:
    desk()
    codes: list[Code] = []

    def make() -> None:
        try:
            codes.append(make_code("desk-1", ApiToken.Scope.MACHINE, actor="ada"))
        finally:
            connection.close()

    for _ in range(3):
        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(codes) == 12
    assert Enrolment.objects.filter(used_at=None, expires_at__gt=clock.now()).count() == 1


def test_host_that_was_retired_gets_no_code_and_its_old_one_is_void() -> None:
    desk()
    code = code_for("desk-1")
    Machine.objects.update(health="retired")
    assert show(code, 409)["code"] == "unknown-host"
    with pytest.raises(CommandError, match="retired"):
        command("desk-1")


def test_command_makes_a_new_machine_and_says_what_is_missing() -> None:
    build_config()
    build_toolchain()
    with pytest.raises(CommandError, match="no machine or builder 'desk-2'"):
        command("desk-2")
    with pytest.raises(CommandError, match="no microarchitecture 'zen9'"):
        command("desk-2", "--uarch", "zen9")
    build_uarch("zen3")
    told = command("desk-2", "--uarch", "zen3", "--driver", "grub")
    machine = Machine.objects.get()
    assert (machine.name, machine.boot_driver, machine.health) == ("desk-2", "grub", "unknown")
    assert "tidemark-agent enrol http" in told
    with pytest.raises(CommandError, match="desk-2 is a zen3 in the site's file, not a zen5"):
        command("desk-2", "--uarch", "zen5")
    for hours in ("0", "100000"):
        with pytest.raises(CommandError, match="720 hours"):
            command("desk-2", "--hours", hours)


def test_body_that_is_none_is_refused_as_such() -> None:
    answer = Client().post("/api/v1/enrolments/", "{}", "application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert Client().get("/api/v1/enrolments/").status_code == 405


def test_driver_that_no_agent_has_is_refused() -> None:
    build_uarch("zen3")
    with pytest.raises(CommandError, match="invalid choice: 'kexecc'"):
        command("desk-7", "--uarch", "zen3", "--driver", "kexecc")
    assert not Machine.objects.exists()
