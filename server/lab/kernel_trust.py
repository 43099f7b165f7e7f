"""Which boots and trees no patch under test had a hand in: only they are believed beyond their own trial."""

from collections.abc import Collection

from django.db.models import F, Q

from server.lab.models import Boot, Session, Trial
from server.sources.models import Patch, Series

_OWN_KERNELS = Q(session__purpose=Session.Purpose.HEALTH) | Q(session__trial__purpose=Trial.Purpose.NOISE)
# The base of a trial about a series may be the series itself without its last patches.
_BASE_OF_SERIES = Q(session__trial__series=None) | Q(session__trial__base=F("session__trial__series__base"))

TRUSTED_BOOT = _OWN_KERNELS | (Q(arm=Boot.Arm.BASE) & _BASE_OF_SERIES)


def trees_of_patches(trees: Collection[str]) -> set[str]:
    """Those of `trees` (git tree ids) that hold a patch under test.

    What such a build tells of its kernel is its author's word: a Makefile may leave another image beside the vmlinux
    that is hashed. It is good for what is said of the series itself, and for nobody else.
    """
    patched = set(Series.objects.filter(head__tree_sha__in=trees).values_list("head__tree_sha", flat=True))
    prefixes = Patch.objects.filter(revision__tree_sha__in=trees)
    patched |= set(prefixes.values_list("revision__tree_sha", flat=True))
    # Of a series, too, and no commit of anybody: its head with one patch taken back.
    asked = Trial.objects.filter(series__isnull=False, patched__tree_sha__in=trees)
    return patched | set(asked.values_list("patched__tree_sha", flat=True))
