"""What two other projects' own tests expect of their test mails: facts only, the mails are beside the repository.

Mails are numbered from 0 in the order of their file. Sources: the unit tests of patchwork (its parser and its series)
and of b4 (its mailboxes and followed-up trailers).
"""

from typing import NamedTuple


class Posted(NamedTuple):
    """One series: its mails by number, in the order of the patches."""

    version: int
    total: int
    cover: int | None
    patches: tuple[int, ...]
    complete: bool = True


class Changed(NamedTuple):
    """The diff of one mail: `first` is its first file; -1 is "whatever"."""

    first: str
    files: int = -1
    insertions: int = -1
    deletions: int = -1
    binary: bool = False


_V1 = Posted(1, 2, 0, (1, 2))
_PAIR = Posted(1, 2, None, (0, 1))
_ONE = Posted(1, 1, None, (0,))

PATCHWORK_SERIES: dict[str, tuple[Posted, ...]] = {
    "base-cover-letter": (_V1,),
    "base-deep-threaded": (_V1,),
    "base-different-versions": (Posted(3, 4, 0, (1, 2, 3, 4)),),
    "base-extra-patches": (Posted(1, 2, 0, (1, 2, 3)),),
    "base-incomplete": (Posted(1, 2, 0, (1,), complete=False),),
    "base-no-cover-letter": (_PAIR,),
    "base-out-of-order": (Posted(1, 2, 2, (1, 0)),),
    "base-single-patch": (_ONE,),
    "bugs-mixed-versions": (Posted(1, 2, None, (0,), complete=False), Posted(2, 2, None, (1,), complete=False)),
    "bugs-multiple-content-types": (_ONE,),
    "bugs-multiple-references": (Posted(2, 4, 0, (1, 2, 3, 4)),),
    "bugs-nocover": (_PAIR, Posted(2, 2, None, (2, 3))),
    "bugs-nocover-noversion": (_PAIR, Posted(1, 2, None, (2, 3))),
    "bugs-spamming": tuple(Posted(2, 4, None, (n,), complete=False) for n in range(3)),
    "bugs-unnumbered": (Posted(1, 2, 0, (1,), complete=False), Posted(1, 1, None, (2,))),
    "dependency-base-patch": (_V1,),
    "revision-basic": (_V1, Posted(2, 2, 3, (4, 5))),
    "revision-no-cover-letter": (_V1, Posted(2, 2, None, (3, 4))),
    "revision-out-of-order": (_V1, Posted(2, 2, 5, (4, 3))),
    "revision-threaded-to-cover": (_V1, Posted(2, 2, 3, (4, 5))),
    "revision-threaded-to-patch": (_V1, Posted(2, 2, 3, (5, 4))),
    "revision-threaded-to-single-patch": (_ONE, Posted(2, 1, None, (1,))),
    "revision-unlabeled": (_V1, Posted(1, 2, 3, (5, 4))),
}

# None: no diff is to be found.
PATCHWORK_DIFFS: dict[str, Changed | None] = {
    "0001-git-pull-request": None,
    "0002-git-pull-request-wrapped": None,
    "0003-git-pull-request-with-diff": Changed("arch/x86/include/asm/smp.h"),
    "0004-git-pull-request-git+ssh": None,
    "0005-git-pull-request-ssh": None,
    "0006-git-pull-request-http": None,
    "0008-git-rename": Changed("package/rpi-userland/rpi-userland-add-pkgconfig-files.patch", 2, 0, 0),
    "0009-git-rename-with-diff": Changed("package/rpi-userland/rpi-userland-add-pkgconfig-files.patch", 2, 1, 1),
    "0011-no-newline-at-end-of-file": Changed("tools/testing/selftests/powerpc/Makefile"),
    "0012-invalid-header-char": Changed("lib/librte_eal/linuxapp/kni/kni_net.c", 1, 1, 1),
    "0013-with-utf8-body": Changed("MAINTAINERS", 1, 3, 1),
    "0014-with-unencoded-utf8-headers": Changed("MAINTAINERS", 1, 3, 1),
    "0015-with-invalid-utf8-headers": Changed("MAINTAINERS", 1, 3, 1),
    "0016-no-subject": Changed("package/rpi-userland/rpi-userland-add-pkgconfig-files.patch"),
    "0017-git-pull-request-git-2-14-3": None,
    "0020-multipart-comment": None,
    "0021-git-empty-new-file": Changed("banana", 1, 0, 0),
    "0023-git-pull-request-newline-in-url": None,
    "0025-git-add-binary-file": Changed("pixel.bmp", 1, binary=True),
    "0027-git-modify-binary-file": Changed("pixel.bmp", 1, binary=True),
}

_JUNK = ("b4/junk.py",)
_BOTH = ("b4/junk.py", "b4/bupkes.py")


class Followed(NamedTuple):
    """A thread of b4: its newest series, the first file of each patch, and how many trailers each reply gives."""

    series: Posted
    files: tuple[str, ...]
    replies: dict[int, int]


B4: dict[str, Followed] = {
    "naked-cover-bugreport": Followed(Posted(1, 1, None, (1,)), ("file1",), {0: 0}),
    "naked-cover-single": Followed(Posted(1, 1, 0, (1,)), ("file1",), {}),
    "trailers-followup-already-present": Followed(_ONE, _JUNK, {2: 0}),
    "trailers-followup-bare-address": Followed(_ONE, _JUNK, {1: 1, 2: 1, 3: 0}),
    "trailers-followup-custody": Followed(_ONE, _JUNK, {1: 1, 2: 1}),
    "trailers-followup-htmljunk": Followed(_ONE, _JUNK, {1: 1}),
    "trailers-followup-name-parens": Followed(_ONE, _JUNK, {1: 1, 2: 1, 3: 0, 4: 1, 5: 1}),
    "trailers-followup-non-git-patch": Followed(_ONE, _JUNK, {1: 1}),
    "trailers-followup-non-git-patch-with-comments": Followed(_ONE, _JUNK, {1: 1}),
    "trailers-followup-nore": Followed(_ONE, _JUNK, {1: 1}),
    "trailers-followup-partial-reroll": Followed(
        Posted(3, 2, None, (1, 5)), ("b4/junk.py", "b4/bogus.py"), {3: 1, 4: 1}
    ),
    "trailers-followup-single": Followed(_ONE, _JUNK, {1: 1, 2: 1, 3: 0}),
    "trailers-followup-stripped-lines": Followed(_ONE, _JUNK, {1: 1}),
    "trailers-followup-with-cover": Followed(Posted(2, 2, 0, (1, 2)), _BOTH, {3: 1, 4: 1}),
    "trailers-followup-with-diffstat": Followed(_ONE, _JUNK, {1: 1}),
}
