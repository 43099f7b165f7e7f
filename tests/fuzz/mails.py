"""Mails as people and programs write them, made up here: what mutations begin with when no corpus lies beside."""

import base64
import quopri

DIFF = """\
Change it.

Change-Id: unrelated
Signed-off-by: Ada Author <ada@example.org>
---
 mm/memory.c | 3 ++-
 1 file changed, 2 insertions(+), 1 deletion(-)

diff --git a/mm/memory.c b/mm/memory.c
index 1111111..2222222 100644
--- a/mm/memory.c
+++ b/mm/memory.c
@@ -1,4 +1,5 @@ static int clear(void)
 line one
-line two
+line 2
+--- line three
 line four
diff --git a/mm/old name.c b/mm/new.c
similarity index 97%
rename from mm/old name.c
rename to mm/new.c
diff --git "a/t\\303\\244st" b/run
old mode 100644
new mode 100755
--
2.39.5

base-commit: 0123456789abcdef0123456789abcdef01234567
prerequisite-patch-id: 89abcdef0123456789abcdef0123456789abcdef
change-id: 20261101-better-0123456789ab
"""
COVER = "Hello,\n\nthis makes things better.\n\nAda Author (2):\n  mm: Change it\n\n mm/memory.c | 3 ++-\n"
REPLY = "On Sunday, Ada wrote:\n> +line 2\n> diff --git a/x b/x\n\nReviewed-by: Bob <bob@example.org>\n"


def mail(number: int, subject: str, body: bytes, *, parent: int | None = None, headers: str = "") -> bytes:
    top = (
        f"From: =?utf-8?q?Ad=C3=A4?= Author <ada@example.org>\nTo: linux-mm@example.org,\n\tBob <bob@example.org>\n"
        f"Cc: x86@example.org\nSubject: {subject}\nDate: Sun, 01 Nov 2026 12:0{number % 10}:00 +0000\n"
        f"Message-ID: <{number}@example.org>\nList-Id: Memory <linux-mm.example.org>\n"
    )
    thread = "" if parent is None else f"In-Reply-To: <{parent}@example.org>\nReferences: <0@example.org>\n"
    return (top + thread + headers + "\n").encode() + body


def _multipart(*parts: tuple[str, bytes], kind: str = "mixed") -> tuple[str, bytes]:
    lines = [b"--=_b1\nContent-Type: " + head.encode() + b"\n\n" + body + b"\n" for head, body in parts]
    return f'MIME-Version: 1.0\nContent-Type: multipart/{kind}; boundary="=_b1"\n', b"".join(lines) + b"--=_b1--\n"


def _encoded(encoding: str, charset: str = "utf-8") -> str:
    return f'Content-Type: text/plain; charset="{charset}"\nContent-Transfer-Encoding: {encoding}\n'


def _all() -> tuple[bytes, ...]:
    diff, crlf = DIFF.encode(), DIFF.replace("\n", "\r\n").encode()
    attached = f'text/x-patch; name="a.patch"\nContent-Disposition: attachment\n{_encoded("base64").splitlines()[1]}'
    with_patch, patch_parts = _multipart(("text/plain", b"See below.\n"), (attached, base64.encodebytes(diff)))
    with_html, html_parts = _multipart(("text/plain", diff), ("text/html", b"<p>x</p>"), kind="alternative")
    return (
        mail(0, "[PATCH v2 0/2] mm: Better", COVER.encode()),
        mail(1, "[PATCH v2 1/2] mm: Change it", diff, parent=0),
        mail(2, "[PATCH v2 2/2] mm: Change\n it twice", crlf, parent=0),
        mail(3, "Re: [PATCH v2 1/2] mm: Change it", REPLY.encode(), parent=1),
        mail(4, "[PATCH] =?iso-8859-1?q?mm=3A_Gr=FCn?=", diff, headers=_encoded("8bit", "iso-8859-1")),
        mail(
            5, "[RFC PATCH RESEND 1/1 mm-unstable] x", quopri.encodestring(diff), headers=_encoded("quoted-printable")
        ),
        mail(6, "[PATCH v3 2/2] x", base64.encodebytes(diff), parent=2, headers=_encoded("base64", "utf-16")),
        mail(7, "[PATCH] With a patch", patch_parts, headers=with_patch),
        mail(8, "[PATCH 1 of 2] Two ways", html_parts, headers=with_html),
        mail(9, "[GIT PULL] for v6.1", b"The following changes since commit\n", headers="X-Tidemark: 1\n"),
        mail(10, "(no mark)", b"From: Bob <bob@example.org>\nSubject: [PATCH] in the body\n\n" + diff),
    )


OWN = _all()
