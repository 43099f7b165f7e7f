from pathlib import Path

import pytest

from server.core.errors import DomainError
from server.lab.models import Machine
from server.lab.site import load_site
from server.sources.models import MailingList, Tree

pytestmark = pytest.mark.django_db

SITE = """
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
    assert [branch.name for branch in Tree.objects.get().branches.all()] == ["linux-6.1.y"]
    assert MailingList.objects.get().moderated


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ('uarch = "haswel"', 'uarch = "haswell"', r"\[\[machine\]\] number 1 \(vm-haswell\)"),
        ('clock = "sundial"', 'clock = "instructions"', "sundial"),
        ("", 'address = "linux-mm@example.org"\n', r"\[\[list\]\] number 1 \(linux-mm\): address is missing"),
        ('fragment_file = "gone.config"', 'fragment_file = "lean.config"', "gone.config"),
        ("[[tre]]", "[[tree]]", "unknown section tre"),
        ("[[tree", "[[tree]]", "site.toml"),
    ],
)
def test_mistake_is_named_and_nothing_is_changed(site: Path, wrong: str, right: str, message: str) -> None:
    site.write_text(SITE.replace(right, wrong, 1))
    with pytest.raises(DomainError, match=message):
        load_site(site)
    assert not Tree.objects.exists()
