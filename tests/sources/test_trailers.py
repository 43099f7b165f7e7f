import pytest

from server.sources.mail.parser import needs_of, trailers_of_patch, trailers_of_reply
from tests.sources.posting import DIFF

ADA = ("Ada Author", "ada@example.org")
SHA = "ab" * 20


def test_trailers_of_a_patch_are_those_at_the_end_of_its_message() -> None:
    text = f"""From: Bo <bo@example.org>

Why: because.

Link: https://example.org/x
Fixes: 0123456789ab ("mm: Break
 it")
Signed-off-by: Bo <bo@example.org>
[ada: mended]
Signed-off-by: A Very Long Name
 <ada@example.org>
---
Cc: nobody@example.org
{DIFF}"""
    assert trailers_of_patch(text) == (
        "Link: https://example.org/x",
        'Fixes: 0123456789ab ("mm: Break it")',
        "Signed-off-by: Bo <bo@example.org>",
        "Signed-off-by: A Very Long Name <ada@example.org>",
    )


def test_patch_without_message_has_no_trailers() -> None:
    assert trailers_of_patch(DIFF.partition("---\n")[2]) == ()


def test_trailers_before_the_last_words_of_a_message_do_not_count() -> None:
    assert trailers_of_patch("Reviewed-by: A <a@example.org>\n\nThat is what he said.\n---\n") == ()


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("Reviewed-by: Ada Author <ada@example.org>", True),
        ("  Tested-By: Ada Author <ada@work.example> # zen3", True),
        ("Reported-and-tested-by: ada@example.org", True),
        ("Acked-by: Ada Author <ada@example.org<mailto:ada@example.org>>", True),
        ("Closes: https://example.org/1", True),
        ('Fixes: 0123456789ab ("mm: x")', True),
        ("> Reviewed-by: Ada Author <ada@example.org>", False),
        ("Reviewed-by: Eve <eve@example.org>", False),
        ("Cc: Ada Author <ada@example.org>", False),
        ("From: Ada Author <ada@example.org>", False),
        ("Note: this is nothing", False),
        ("Fixes: nothing", False),
        ("Reviewed-by: see https://example.org/ada@example.org", False),
    ],
)
def test_trailer_in_a_reply_counts_if_its_sender_gives_it(line: str, *, counts: bool) -> None:
    assert bool(trailers_of_reply(f"Nice.\n\n{line}\n\nThanks\n", ADA)) == counts


def test_signature_gives_no_trailers() -> None:
    assert trailers_of_reply("No.\n-- \nReviewed-by: Ada Author <ada@example.org>\n", ADA) == ()


def test_what_a_series_needs_is_read_in_its_order() -> None:
    text = f"""base-commit: {SHA}
change-id: 20261101-clear-abc
prerequisite-change-id: 20261101-base-def:v2
prerequisite-patch-id: {SHA}
prerequisite-patch-id: 12
Depends-on: <cover@example.org>
Depends-on: https://lore.example.org/linux-mm/patch-1@example.org/T/
Based-on: bare@example.org
Depends-on: series-12345
> prerequisite-message-id: <quoted@example.org>
"""
    needs = needs_of(text)
    assert (needs.base_commit, needs.change_id) == (SHA, "20261101-clear-abc")
    assert needs.prerequisites == (
        "change-id:20261101-base-def:v2",
        f"patch-id:{SHA}",
        "unknown:12",
        "message-id:cover@example.org",
        "message-id:patch-1@example.org",
        "message-id:bare@example.org",
        "unknown:series-12345",
    )


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("https://lore.kernel.org/r/20260101.12-1-ada@example.org", "20260101.12-1-ada@example.org"),
        ("https://lore.kernel.org/all/a%2Bb%40example.org/T/#t", "a+b@example.org"),
        ("https://patch.msgid.link/one@example.org", "one@example.org"),
        ("[1] https://lore.kernel.org/linux-mm/one@example.org/ (v3)", "one@example.org"),
        ("<https://lore.kernel.org/r/one@example.org>", "one@example.org"),
        ("https://patchwork.kernel.org/project/linux-mm/patch/one@example.org/", "one@example.org"),
        ("https://patchwork.kernel.org/project/linux-mm/cover/one@example.org/", "one@example.org"),
        ("https://marc.info/?i=one%40example.org", "one@example.org"),
        ("HTTPS://lore.kernel.org/r/one@example.org/", "one@example.org"),
        ("one@example.org", "one@example.org"),
    ],
)
def test_address_of_a_mail_names_it(told: str, name: str) -> None:
    assert needs_of(f"Depends-on: {told}\n").prerequisites == (f"message-id:{name}",)
    assert needs_of(f"prerequisite-message-id: {told}\n").prerequisites == (f"message-id:{name}",)


@pytest.mark.parametrize(
    "told",
    [
        "https://patchwork.kernel.org/project/linux-mm/list/?series=12345",
        "https://patchwork.ozlabs.org/patch/1234567/",
        "https://ada@example.org/patch/1234567/",
        "https://[broken",
        "series-12345 (mm: Something)",
        "0123456789ab (mm: Something)",
        "<no-id>",
        "@",
    ],
)
def test_prerequisite_that_names_no_mail_is_kept_as_it_stands(told: str) -> None:
    assert needs_of(f"Depends-on: {told}\n").prerequisites == (f"unknown:{told}",)


def test_prerequisite_that_is_too_long_to_store_is_cut_but_told() -> None:
    assert needs_of(f"Depends-on: <{'a' * 400}@example.org>\n").prerequisites == (f"unknown:<{'a' * 291}",)
