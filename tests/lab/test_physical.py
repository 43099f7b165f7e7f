"""A machine is physical when nothing says otherwise, or a person does; what is in doubt is no evidence before."""

import io
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from server.core.errors import DomainError
from server.core.models import Transition
from server.lab import care
from server.lab.attempts.boots import note_machine
from server.lab.hosts.probes import SUBJECT, MachineKind, kind_of
from server.lab.models import Machine
from server.lab.site import load_site
from tests.builders import build_machine

pytestmark = pytest.mark.django_db

CPU: dict[str, object] = {"uarch": "haswell", "vendor": "GenuineIntel", "arch": "x86_64"}
DOUBTED: dict[str, object] = {
    **CPU,
    "virtual": False,
    "doubts": {"virtio": "it has virtio devices, as guests have and a few cards on bare metal"},
}
CLEAR: dict[str, object] = {**CPU, "virtual": False, "doubts": {}}
GUEST: dict[str, object] = {"uarch": "haswell", "virtual": True, "hypervisor": "kvm", "doubts": {}}


def seen(machine: Machine, *boots: dict[str, object]) -> Machine:
    for facts in boots:
        note_machine(machine=machine, facts=facts, trace="b1946ac92492d234")
    return Machine.objects.get()


def lines() -> list[tuple[str, str, str, str]]:
    rows = Transition.objects.filter(subject=SUBJECT).order_by("id")
    return list(rows.values_list("before", "after", "reason", "actor"))


def test_doubt_of_a_probe_makes_a_machine_no_evidence_until_a_person_vouches_for_it() -> None:
    machine = seen(build_machine(), CLEAR)
    assert (machine.virtual, lines()) == (False, [])
    machine = seen(machine, DOUBTED, DOUBTED, CLEAR)
    assert (machine.virtual, kind_of(machine)) == (True, MachineKind.UNKNOWN), (
        "a later probe that does not doubt is no word"
    )
    care.call_physical(machine, "a card that\nspeaks virtio", actor="ada")
    machine = seen(machine, DOUBTED)
    assert (machine.virtual, kind_of(machine)) == (False, MachineKind.PHYSICAL)
    assert (machine.physical_by, machine.physical_reason) == ("ada", "a card that speaks virtio")
    assert machine.physical_at is not None
    doubt = "it has virtio devices, as guests have and a few cards on bare metal"
    assert lines() == [
        ("physical", "unknown", doubt, ""),
        ("unknown", "physical", "a card that speaks virtio", "ada"),
    ]


def test_word_that_is_taken_back_leaves_the_doubt() -> None:
    machine = seen(build_machine(), DOUBTED)
    care.call_physical(machine, "seen in the rack", actor="ada")
    care.doubt(machine, "that was another one", actor="bob")
    machine.refresh_from_db()
    assert (machine.virtual, kind_of(machine), machine.physical_by) == (True, MachineKind.UNKNOWN, "")
    assert lines()[-1] == ("physical", "unknown", "that was another one", "bob")
    with pytest.raises(DomainError, match="nobody said that vm-haswell is physical"):
        care.doubt(machine, "once more", actor="bob")


def test_proof_of_a_hypervisor_stands_against_every_word() -> None:
    machine = seen(build_machine(), DOUBTED)
    care.call_physical(machine, "seen in the rack", actor="ada")
    machine = seen(machine, GUEST, CLEAR)
    assert (machine.virtual, kind_of(machine)) == (True, MachineKind.VIRTUAL)
    assert lines()[-1] == ("physical", "virtual", "a probe saw a hypervisor: kvm", "")
    with pytest.raises(DomainError, match="is virtual: its registration or a probe says so"):
        care.call_physical(machine, "but I saw it", actor="ada")


def test_word_needs_a_person_and_a_reason() -> None:
    machine = seen(build_machine(), DOUBTED)
    for reason, actor in (("", "ada"), ("  ", "ada"), ("seen", "")):
        with pytest.raises(DomainError):
            care.call_physical(machine, reason, actor=actor)
    assert Machine.objects.get().virtual


@pytest.mark.parametrize("told", [None, [], "virtio", {"virtio": 1}, {"": ""}, {1: None}])
def test_doubts_that_are_no_texts_are_none(told: object) -> None:
    assert not seen(build_machine(), {**CPU, "virtual": False, "doubts": told}).virtual


@pytest.mark.parametrize(("name", "told"), [("vendor", ""), ("vendor", None), ("arch", ""), ("arch", 64)])
def test_measured_boot_whose_facts_do_not_name_the_cpu_is_doubted(name: str, told: object) -> None:
    """An agent that is older than the doubts tells none."""
    facts = {**CLEAR, name: told}
    del facts["doubts"]
    machine = build_machine()
    note_machine(machine=machine, facts=facts, trace="b1946ac92492d234", measured=False)
    assert kind_of(machine) == MachineKind.PHYSICAL, "a boot that failed may show half of it"
    machine = seen(machine, facts)
    assert (kind_of(machine), list(machine.doubts)) == (MachineKind.UNKNOWN, [name])
    assert kind_of(seen(machine, {**GUEST, name: told})) == MachineKind.VIRTUAL
    own = {**facts, "doubts": {name: "the probe's own words"}}
    assert seen(machine, own).doubts == {name: "the probe's own words"}


def test_doubts_of_a_broken_agent_are_bounded() -> None:
    told = {f"code-{n}" * 50: "x" * 10_000 for n in range(1000)}
    machine = seen(build_machine(), {"uarch": "haswell", "doubts": told})
    assert len(machine.doubts) <= 20
    assert max(map(len, machine.doubts.values())) == 300


def test_command_tells_the_doubt_and_takes_the_word() -> None:
    seen(build_machine(), DOUBTED)
    assert "taken for: unknown\n  it has virtio devices" in told_by("machine", "vm-haswell")
    said = told_by("machine", "vm-haswell", "--physical", "seen in the rack", "--by", "ada")
    assert said == "vm-haswell: physical\n"
    told = told_by("machine", "vm-haswell")
    assert "taken for: physical, on the word of ada of " in told
    assert "kind unknown -> physical by ada: seen in the rack" in told
    assert told_by("machine", "vm-haswell", "--doubt", "moved", "--by", "bob") == "vm-haswell: unknown\n"
    seen(Machine.objects.get(), GUEST)
    with pytest.raises(CommandError, match="is virtual"):
        told_by("machine", "vm-haswell", "--physical", "no", "--by", "ada")


def told_by(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_site_file_vouches_once_and_says_who(tmp_path: Path) -> None:
    machine = seen(build_machine(), DOUBTED)
    site = tmp_path / "site.toml"
    entry = (
        f'[[machine]]\nname = "vm-haswell"\nuarch = "{machine.uarch.name}"\nboot_driver = "qemu"\n'
        f'config = "{machine.config.name}"\ntoolchain = "{machine.toolchain.name}"\n'
    )
    site.write_text(entry)
    load_site(site)
    assert Machine.objects.get().virtual, "a file that says nothing of it is no word"
    site.write_text(entry + 'physical = "ada: seen in the rack"\n')
    load_site(site)
    load_site(site)
    machine = Machine.objects.get()
    assert (machine.virtual, machine.physical_by, machine.physical_reason) == (False, "ada", "seen in the rack")
    assert [line[1:] for line in lines()[1:]] == [("physical", "seen in the rack", "ada")]
    for bad in ('"seen"', '"ada:"', "true"):
        site.write_text(f"{entry}physical = {bad}\n")
        with pytest.raises(DomainError, match="physical"):
            load_site(site)


def test_pages_say_who_vouched_and_let_people_do_so(client: Client) -> None:
    seen(build_machine(), DOUBTED)
    page = client.get("/machines/vm-haswell/").content.decode()
    assert "virtual or physical: not known" in page
    assert "as guests have and a few cards on bare metal. What it measures is no evidence until a person" in page
    ada = User.objects.create_user("ada")
    ada.user_permissions.add(Permission.objects.get(codename="change_machine"))
    client.force_login(ada)
    assert "It is physical, on my word" in client.get("/machines/vm-haswell/").content.decode()
    client.post("/machines/vm-haswell/act/", {"action": "physical", "reason": "seen in the rack"})
    page = client.get("/machines/vm-haswell/").content.decode()
    assert "physical on the word of ada since" in page
    assert "Take back that it is physical" in page
    standing = client.get("/api/v1/machines/vm-haswell/").json()["standing"]
    assert (standing["kind"], standing["by"], standing["reason"]) == ("physical", "ada", "seen in the rack")
