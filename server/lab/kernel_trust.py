"""Which boots and trees no patch under test had a hand in: only they are believed beyond their own trial."""

from collections.abc import Collection

from django.db.models import Exists, OuterRef, Q

from server.lab.models import Boot, Session, Trial
from server.sources.models import Revision

_OWN_KERNELS = Q(session__purpose=Session.Purpose.HEALTH) | Q(session__trial__purpose=Trial.Purpose.NOISE)


def _is_published(build: str) -> Q:
    """Whether a watched tree has the source of this build, whoever asked for it first."""
    return Q(Exists(Revision.objects.filter(tree_sha=OuterRef(f"session__{build}__tree_sha"), foreign=False)))


# The base of a trial about a series may be that series without its last patches, or hold other ones.
TRUSTED_BOOT = (Q(arm=Boot.Arm.BASE) & _is_published("base_build")) | (
    Q(arm=Boot.Arm.PATCHED) & _OWN_KERNELS & _is_published("patched_build")
)


def trees_of_patches(trees: Collection[str]) -> set[str]:
    """Those of `trees` (git tree ids) that hold a patch of a mail: no watched tree published a commit of them.

    What such a build tells of its kernel is its author's word: a Makefile may leave another image beside the vmlinux
    that is hashed. It is good for what is said of the series itself, and for nobody else.
    """
    published = Revision.objects.filter(tree_sha__in=trees, foreign=False)
    return set(trees).difference(published.values_list("tree_sha", flat=True))
