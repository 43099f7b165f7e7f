from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from server.core.errors import DomainError
from server.lab.models import Builder, Machine
from server.lab.site import load_site
from server.sources.models import MailingList, Tree, TrustedSender

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]

SITE = """
[[sender]]
address = "ada@example.org"
note = "Ada"

[[tree]]
name = "stable"
url = "file:///srv/linux.git"
branches = ["linux-6.1.y"]

[[list]]
name = "linux-mm"
url = "http://127.0.0.1:1/linux-mm"
address = "linux-mm@example.org"
tree = "stable"

[[config]]
name = "lean"
arch = "x86_64"
fragment_file = "lean.config"

[[toolchain]]
name = "gcc"
compiler = "gcc"

[[uarch]]
name = "haswell"
arch = "x86_64"
title = "Intel Haswell"

[[machine]]
name = "vm-haswell"
uarch = "haswell"
virtual = true
clock = "instructions"
boot_driver = "qemu"
config = "lean"
toolchain = "gcc"
boots_per_side = 4
options = { cpu = "Haswell", memory_mb = 512 }
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "lean.config").write_text("CONFIG_64BIT=y\n")
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    return path


def test_site_is_loaded_and_loading_it_again_changes_nothing(site: Path) -> None:
    for _ in range(2):
        assert load_site(site)["machine"] == 1
    machine = Machine.objects.get()
    assert machine.driver_options == {"cpu": "Haswell", "memory_mb": 512}
    assert machine.config.fragment == "CONFIG_64BIT=y\n"
    assert Tree.objects.get().branch_patterns == ["linux-6.1.y"]
    linux_mm = MailingList.objects.get()
    assert linux_mm.moderated
    assert (linux_mm.proof, linux_mm.since) == ("dkim", None)
    assert [(sender.address, sender.note) for sender in TrustedSender.objects.all()] == [("ada@example.org", "Ada")]


def test_list_may_prove_its_senders_begin_late_and_have_no_tree(site: Path) -> None:
    late = 'tree = "stable"\nproof = "archive"\nsince = 2026-01-05'
    site.write_text(SITE.replace('tree = "stable"', late).replace('url = "http://127.0.0.1:1/linux-mm"', 'url = ""'))
    load_site(site)
    linux_mm = MailingList.objects.get()
    assert (linux_mm.proof, linux_mm.url) == ("archive", "")
    assert linux_mm.since == datetime(2026, 1, 5, tzinfo=UTC)
    site.write_text(SITE.replace('tree = "stable"\n', "since = 2026-01-05T12:00:00+01:00\n"))
    load_site(site)
    linux_mm.refresh_from_db()
    assert linux_mm.tree is None
    assert linux_mm.since == datetime(2026, 1, 5, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ('uarch = "haswel"', 'uarch = "haswell"', r"\[\[machine\]\] number 1 \(vm-haswell\)"),
        ('clock = "sundial"', 'clock = "instructions"', "sundial"),
        ("", 'address = "linux-mm@example.org"\n', r"\[\[list\]\] number 1 \(linux-mm\): address is missing"),
        ('fragment_file = "gone.config"', 'fragment_file = "lean.config"', "gone.config"),
        ("[[tre]]", "[[tree]]", "unknown section tre"),
        ('address = "ada"', 'address = "ada@example.org"', r"\[\[sender\]\] number 1 \(ada\)"),
        ('tree = "stable"\nproof = "none"', 'tree = "stable"', r"\[\[list\]\] number 1 \(linux-mm\): .*none"),
        ('tree = "stable"\nsince = 7', 'tree = "stable"', "since: 7 is no date"),
        ("[[tree", "[[tree]]", "site.toml"),
    ],
)
def test_mistake_is_named_and_nothing_is_changed(site: Path, wrong: str, right: str, message: str) -> None:
    site.write_text(SITE.replace(right, wrong, 1))
    with pytest.raises(DomainError, match=message):
        load_site(site)
    assert not Tree.objects.exists()


BUILDER = """
[[builder]]
name = "big"
node = "big.lab"
arches = ["x86_64", "arm64"]
toolchains = ["gcc"]
capacity = 2
jobs = 16
"""
MORE = 'boots_per_side = 4\nnode = "vm-1.lab"\ncapabilities = ["numa", "cxl"]\nhealth = "unknown"\n'


def test_hosts_have_nodes_and_machines_capabilities(site: Path) -> None:
    site.write_text(SITE.replace("boots_per_side = 4\n", MORE) + BUILDER)
    assert load_site(site)["builder"] == 1
    builder, machine = Builder.objects.exclude(name="local-builder").get(), Machine.objects.get()
    assert (builder.node, builder.arches, builder.toolchains) == ("big.lab", ["arm64", "x86_64"], ["gcc"])
    assert (builder.capacity, builder.jobs) == (2, 16)
    assert (machine.node_name, machine.capabilities, machine.health) == ("vm-1.lab", ["cxl", "numa"], "unknown")


def test_file_says_how_a_new_machine_is_and_never_changes_it_later(site: Path) -> None:
    load_site(site)
    Machine.objects.update(health="quarantined", health_reason="smoke", state="working")
    site.write_text(SITE.replace("boots_per_side = 4\n", MORE))
    load_site(site)
    machine = Machine.objects.get()
    assert (machine.health, machine.health_reason, machine.state) == ("quarantined", "smoke", "working")


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        (
            'node = "vm-haswell"',
            'node = "big.lab"',
            r"\[\[builder\]\] number 1 \(big\): node: vm-haswell is the node of",
        ),
        ('node = "../x"', 'node = "big.lab"', "is no node's name"),
        ('toolchains = ["gc"]', 'toolchains = ["gcc"]', "there is no toolchain gc"),
        ("capacity = 0", "capacity = 2", "capacity"),
        ('arches = "x86_64"', 'arches = ["x86_64", "arm64"]', "no list of texts"),
        ("arches = []", 'arches = ["x86_64", "arm64"]', "at least one"),
        ("", 'arches = ["x86_64", "arm64"]\n', "arches is missing"),
        ("cores = 16", "jobs = 16", "unknown key cores"),
        ('name = "local-builder"', 'name = "big"', "this host itself"),
        ('health = "sick"', "boots_per_side = 4", r"\[\[machine\]\] number 1 \(vm-haswell\): health: 'sick'"),
        ('capabilities = ["A B"]', "boots_per_side = 4", "capabilities: 'A B'"),
    ],
)
def test_mistake_about_a_host_is_named_and_nothing_is_changed(site: Path, wrong: str, right: str, message: str) -> None:
    site.write_text((SITE + BUILDER).replace(right, wrong, 1))
    with pytest.raises(DomainError, match=message):
        load_site(site)
    assert not Machine.objects.exists()
    assert not Builder.objects.exists()


def test_whole_example_site_is_taken_after_what_is_shipped_and_taken_again() -> None:
    call_command("load_builds", stdout=StringIO())
    for _ in range(2):
        call_command("load_site", str(ROOT / "docs/examples/site.toml"), stdout=StringIO())
    assert set(Machine.objects.values_list("name", "health")) == {("rome-1", "unknown"), ("altra-1", "unknown")}
    assert set(Builder.objects.get(name="big").arches) == {"x86_64", "arm64"}
