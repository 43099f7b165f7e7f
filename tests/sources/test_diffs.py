import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.sources.mail.diffs import Diff, FileChange, git_names, read_diff, unquoted

HUNK = "@@ -1,2 +1,3 @@ main()\n one\n-two\n+2\n+3\n"


def only(text: str) -> FileChange:
    (change,) = read_diff(text).files
    return change


def test_git_diff_is_read_with_blobs_mode_and_counts() -> None:
    header = "diff --git a/mm/a.c b/mm/a.c\nindex 1111111..2222222 100644\n--- a/mm/a.c\n+++ b/mm/a.c\n"
    text = f"Why.\n---\n a | 3 ++-\n\n{header}{HUNK}-- \n2.39\n"
    assert only(text) == FileChange("mm/a.c", "mm/a.c", "1111111", "2222222", "100644", "100644", 2, 1)


def test_new_and_deleted_files_have_one_path() -> None:
    new = (
        "diff --git a/n b/n\nnew file mode 100755\nindex 0000000..2222222\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
    )
    old = "diff --git a/o b/o\ndeleted file mode 100644\n--- a/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    added, deleted = read_diff(new + old).files
    assert (added.old_path, added.new_path, added.old_mode, added.new_mode) == (None, "n", "", "100755")
    assert (deleted.old_path, deleted.new_path, deleted.old_mode, deleted.new_mode) == ("o", None, "100644", "")
    assert read_diff(new + old).paths == ("n", "o")


@pytest.mark.parametrize(
    ("header", "old", "new"),
    [
        ("old mode 100644\nnew mode 100755\n", "x", "x"),
        ("similarity index 100%\nrename from was/x\nrename to is/y\n", "was/x", "is/y"),
        ("similarity index 90%\ncopy from x\ncopy to y\nindex 1111..2222 100644\n", "x", "y"),
        ("new file mode 100644\nindex 0000000..e69de29\n", None, "x"),
    ],
)
def test_change_without_content_counts(header: str, old: str | None, new: str) -> None:
    change = only(f"diff --git a/x b/x\n{header}-- \n2.39\n")
    assert (change.old_path, change.new_path, change.insertions, change.binary) == (old, new, 0, False)


@pytest.mark.parametrize("content", ["Binary files a/x and b/x differ\n", "GIT binary patch\nliteral 3\nKc${Nk-\n\n"])
def test_binary_file_is_marked(content: str) -> None:
    assert only(f"diff --git a/x b/x\nindex 1111111..2222222 100644\n{content}").binary


def test_renamed_file_may_have_hunks_without_names() -> None:
    change = only(f"diff --git a/x b/y\nrename from x\nrename to y\n{HUNK}")
    assert (change.old_path, change.new_path, change.insertions, change.deletions) == ("x", "y", 2, 1)


def test_lines_of_a_hunk_are_no_header() -> None:
    """A deleted line `-- a` and an added `++ b` look like the names of another file."""
    text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n"
    assert (only(text).new_path, only(text).insertions, only(text).deletions) == ("x", 1, 1)


def test_text_that_begins_with_dashes_is_no_diff() -> None:
    for text in (
        "--- a\nb\n",
        "--- a\n+++ b\nno hunk\n",
        "diff --git a/x b/x\nnothing\n",
        "> --- a\n> +++ b\n> @@ -1 +1 @@\n",
    ):
        assert not read_diff(text)


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (
            "linux-6.1.orig/mm/x.c\t2020-01-01 10:00:00.0 +0000",
            "linux-6.1/mm/x.c\t2020-01-02 10:00:00.0 +0000",
            "mm/x.c",
        ),
        ("mm/x.c (revision 12)", "mm/x.c (working copy)", "mm/x.c"),
        ("mm/x.c Tue Jan  1 10:00:00 2020", "mm/x.c Tue Jan  1 10:00:01 2020", "mm/x.c"),
        ("mm/x.c.orig", "mm/x.c", "mm/x.c"),
        ("a/mm/x.c", "b/mm/x.c", "mm/x.c"),
        ("a/mm/two words.c\t", "b/mm/two words.c\t", "mm/two words.c"),
    ],
)
def test_plain_diff_names_its_file(old: str, new: str, path: str) -> None:
    assert only(f"Index: x\n=====\n--- {old}\n+++ {new}\n{HUNK}").new_path == path
    assert read_diff(f"--- {old}\n+++ {new}\n{HUNK}").paths == (path,)


def test_context_that_lost_its_blanks_is_context() -> None:
    change = only("--- a/x\n+++ b/x\n@@ -1,4 +1,4 @@\n\n-a\n+b\n\n\n-- \n2.39\n")
    assert (change.insertions, change.deletions) == (1, 1)


def test_missing_newline_at_the_end_is_no_line() -> None:
    text = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
    assert (only(text).insertions, only(text).deletions) == (1, 1)


@pytest.mark.parametrize("header", ["@@ -1,1000000000 +1,1000000000 @@", f"@@ -1,{'9' * 18} +1 @@"])
def test_lines_that_a_hunk_only_claims_cost_nothing(header: str) -> None:
    assert only(f"--- a/x\n+++ b/x\n{header}\n+a\n").insertions == 1


def test_hunk_that_nobody_counted_goes_to_the_signature() -> None:
    change = only("--- a/x\n+++ b/x\n@@@ -1,1 +1,1 @@ main()\n\n\n-a\n+b\n\n-- \n2.39\n")
    assert (change.insertions, change.deletions) == (1, 1)


def test_path_longer_than_any_system_has_is_cut() -> None:
    assert all(len(p) <= 4096 for p in read_diff(f"--- a/{'x' * 9000}\n+++ b/{'y' * 9000}\n{HUNK}").paths)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("a/x b/x", ("x", "x")),
        ("a/two words b/two words", ("two words", "two words")),
        ("x.bmp x.bmp", ("x.bmp", "x.bmp")),
        ('"a/caf\\303\\251" "b/caf\\303\\251"', ("café", "café")),
        ('a/x "b/\\t"', ("x", "\t")),
        ("a/short b/much/longer", ("short", "much/longer")),
    ],
)
def test_names_of_a_git_diff(line: str, names: tuple[str, str]) -> None:
    assert git_names(line) == names


def test_only_quoted_names_are_unquoted() -> None:
    assert unquoted('"a\\"b\\\\"') == 'a"b\\'
    assert unquoted("a\\303") == "a\\303"


_LINES = st.sampled_from(
    [
        *("diff --git a/x b/x", "--- a/x", "+++ b/x", "@@ -1 +1 @@", "@@ -1,9 +1,9 @@", "-a", "+b", " c", "", "text"),
        *("rename from x", "new file mode 100644", "index 1111..2222 100644", "GIT binary patch", "@@@ -1 +1 @@"),
    ]
)


@given(st.lists(_LINES, max_size=30))
def test_every_line_counts_at_most_once(lines: list[str]) -> None:
    found = read_diff("\n".join(lines))
    assert isinstance(found, Diff)
    assert found.insertions <= sum(line.startswith("+") for line in lines)
    assert found.deletions <= sum(line.startswith("-") for line in lines)
    assert len(found.files) <= len(lines)
