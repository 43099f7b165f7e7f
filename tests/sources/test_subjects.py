import pytest

from server.sources.mail.postings import Marks, normalised, parse_subject


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("[PATCH 1 of 2] hg: x", Marks("hg: x", patch=True, index=1, total=2)),
        ("[PATCH 0 of 12 v3] x", Marks("x", patch=True, version=3, index=0, total=12)),
        ("[PATCH1/8] x", Marks("x", patch=True, index=1, total=8)),
        ("[v2PATCH1/4] x", Marks("x", patch=True, version=2, index=1, total=4)),
        ("[v2.3PATCH 1/4] x", Marks("x", patch=True, version=2, minor=3, index=1, total=4)),
        ("[PATCH v11.1 3/15] x", Marks("x", patch=True, version=11, minor=1, index=3, total=15)),
        ("[PATCH V2.10] x", Marks("x", patch=True, version=2, minor=10)),
        ("[PATCH 2/3 v2] x", Marks("x", patch=True, version=2, index=2, total=3)),
        ("[PATCH] mm: x (v2.1)", Marks("mm: x (v2.1)", patch=True, version=2, minor=1)),
        ("[PATCH,RFC,1/2] x", Marks("x", patch=True, rfc=True, index=1, total=2)),
        ("[PATCH] [RFC] [1/2] x", Marks("x", patch=True, rfc=True, index=1, total=2)),
        ("[Patch 2/2]: x", Marks("x", patch=True, index=2, total=2)),
        ("[PATCH [v2] 1/2] x", Marks("x", patch=True, version=2, index=1, total=2)),
        ("[PATCH] rewrite [a-z] regexes", Marks("rewrite [a-z] regexes", patch=True)),
        ("[PATCH] mm: x (v2)", Marks("mm: x (v2)", patch=True, version=2)),
        ("[PATCH v3] mm: x (v2)", Marks("mm: x (v2)", patch=True, version=3)),
        ("[PATCH] nfs: fix v4 mounts", Marks("nfs: fix v4 mounts", patch=True)),
        ("[RFC/RFT PATCH] x", Marks("x", patch=True, rfc=True, tags=("RFC/RFT",))),
        ("[PATCH RE-SEND] x", Marks("x", patch=True, resend=True)),
        ("[PATCH 3/n] x", Marks("x", patch=True, tags=("3/n",))),
        ("[net-next,v2,1/2] x", Marks("x", patch=True, version=2, index=1, total=2, tags=("net-next",))),
        ("[External] Re: [PATCH] x", Marks("x", patch=True, reply=True, tags=("External",))),
        ("RE x", Marks("x", reply=True)),
        ("Re-enable x", Marks("Re-enable x")),
        ("WG: [PATCH] x", Marks("x", patch=True, reply=True)),
        ("mm: [x] y", Marks("mm: [x] y")),
        ("[" * 5000, Marks("[" * 5000)),
    ],
)
def test_subject_says(subject: str, expected: Marks) -> None:
    assert parse_subject(subject) == expected


def test_titles_of_two_versions_are_the_same() -> None:
    assert normalised("mm: Clear  pages (v2)") == normalised("mm: clear pages")
