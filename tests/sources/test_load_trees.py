from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from server.core.errors import DomainError
from server.sources.models import Tree
from server.sources.trees.entries import load_trees
from tests.house.sources import ROOT

pytestmark = pytest.mark.django_db

FULL = """
[[tree]]
name = "mm"
url = "https://git.kernel.org/mm.git"
branches = ["mm-new", "mm-*stable"]
tags = ["v*"]
rebasing = true
poll_seconds = 600
priority = 20
uarchs = ["zen5"]
benchmarks = ["mem-mmap"]
reference = "v6.12"
heads_per_day = 4
merges_by = ["Ada@Example.org"]
subject_tags = ["mm"]
addresses = ["linux-mm@kvack.org"]
paths = ["mm/"]
"""
SMALL = """
[[tree]]
name = "mm"
url = "/srv/mm.git"
branches = ["master"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trees.toml"
    path.write_text(FULL)
    return path


def test_every_key_fills_its_column(file: Path) -> None:
    assert load_trees(file).created == ("mm",)
    tree = Tree.objects.get()
    assert (tree.url, tree.branch_patterns, tree.tag_patterns) == (
        "https://git.kernel.org/mm.git",
        ["mm-new", "mm-*stable"],
        ["v*"],
    )
    assert (tree.rebasing, tree.poll_seconds, tree.priority, tree.heads_per_day) == (True, 600, 20, 4)
    assert tree.reference == "v6.12"
    assert (tree.uarchs, tree.benchmarks, tree.merges_by) == (["zen5"], ["mem-mmap"], ["ada@example.org"])
    assert (tree.subject_tags, tree.addresses, tree.paths) == (["mm"], ["linux-mm@kvack.org"], ["mm/"])


def test_loading_again_updates_resets_what_is_left_out_and_keeps_everything_else(file: Path) -> None:
    Tree.objects.create(name="other", url="/srv/other.git")
    load_trees(file)
    Tree.objects.filter(name="mm").update(enabled=False, failures=3, last_error="away")
    file.write_text(SMALL)
    assert load_trees(file).updated == ("mm",)
    tree = Tree.objects.get(name="mm")
    assert (tree.url, tree.branch_patterns, tree.rebasing, tree.paths) == ("/srv/mm.git", ["master"], False, [])
    assert (tree.heads_per_day, tree.poll_seconds) == (None, 300)
    assert (tree.enabled, tree.failures, tree.last_error) == (False, 3, "away")
    assert Tree.objects.filter(name="other").exists()


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("branches =", "branchs =", "branches is missing"),
        ("paths =", "pathes =", "unknown key pathes"),
        ("rebasing = true", 'rebasing = "yes"', "rebasing: must be true or false"),
        ("priority = 20", "priority = true", "priority: must be a whole number from -1000 to 1000"),
        ("poll_seconds = 600", "poll_seconds = 0", "poll_seconds: must be a whole number from 10 to 86400"),
        ("heads_per_day = 4", "heads_per_day = -1", "heads_per_day: must be a whole number"),
        ('"v6.12"', '"v6 12"', "reference: v6 12 is no usable name of a tag, and no commit"),
        ('"v6.12"', '"--all"', "reference: --all is no usable name"),
        ('uarchs = ["zen5"]', 'uarchs = "zen5"', "uarchs: must be a list"),
        ('["zen5"]', f'["{"z" * 61}"]', "uarchs: Item 1 .* at most 60 characters"),
        ('["mm-new", "mm-*stable"]', "[]", "branches: names nothing to watch"),
        ('"mm-new"', '"refs/heads/mm-new"', "branches: refs/heads/mm-new: write it without refs/heads/"),
        ('"mm-new"', '"mm new"', "branches: mm new is no usable name"),
        ('"mm-new"', '"../*"', r"branches: \.\./\* is no usable pattern"),
        ('"https://git.kernel.org/mm.git"', '"ext::sh -c reboot"', "url: must begin with https://"),
        ('"https://git.kernel.org/mm.git"', '"--upload-pack=reboot"', "url: must begin with https://"),
        ('"https://git.kernel.org/mm.git"', '"https:///mm.git"', "url: names no host"),
        ('name = "mm"', 'name = "../mm"', "name: Enter a valid"),
        ('"linux-mm@kvack.org"', '"linux-mm"', "addresses: linux-mm is no mail address"),
        ('paths = ["mm/"]', 'paths = ["/mm/"]', "paths: /mm/ must be a path inside the tree"),
        ('name = "mm"', 'name = "m\\u0007m"', "name: holds characters that cannot be printed"),
    ],
)
def test_mistake_is_named_with_entry_and_key_and_nothing_is_changed(
    file: Path, right: str, wrong: str, message: str
) -> None:
    good = '[[tree]]\nname = "good"\nurl = "/srv/good.git"\nbranches = ["master"]\n'
    assert right in FULL
    file.write_text(good + FULL.replace(right, wrong, 1))
    with pytest.raises(DomainError, match=rf"trees.toml: \[\[tree\]\] number 2 \(.*\): {message}"):
        load_trees(file)
    assert not Tree.objects.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[tree", "trees.toml: "),
        ('[[list]]\nname = "x"', "unknown section list"),
        ("tree = 1", r"trees are written as \[\[tree\]\]"),
        ("tree = [1]", r"number 1 \(no table\): is no table"),
        (SMALL + SMALL, r"number 2 \(mm\): named twice"),
    ],
)
def test_file_that_is_no_list_of_trees_is_refused(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(DomainError, match=message):
        load_trees(file)
    assert not Tree.objects.exists()


def test_shipped_example_loads(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("load_trees", str(ROOT / "docs/examples/trees.toml"))
    call_command("load_trees", str(ROOT / "docs/examples/trees.toml"))
    assert "6 trees created, 0 updated" in capsys.readouterr().out
    assert set(Tree.objects.values_list("name", flat=True)) == {
        *("mm", "mm-stable", "arm64", "tip", "mainline", "stable")
    }


def test_command_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"gone\.toml"):
        call_command("load_trees", str(tmp_path / "gone.toml"))
