"""Which boots ran a kernel that no patch under test had a hand in: what they say of their machine can be believed."""

from django.db.models import F, Q

from server.lab.models import Boot, Session, Trial

_OWN_KERNELS = Q(session__purpose=Session.Purpose.HEALTH) | Q(session__trial__purpose=Trial.Purpose.NOISE)
# The base of a trial about a series may be the series itself without its last patches.
_BASE_OF_SERIES = Q(session__trial__series=None) | Q(session__trial__base=F("session__trial__series__base"))

TRUSTED_BOOT = _OWN_KERNELS | (Q(arm=Boot.Arm.BASE) & _BASE_OF_SERIES)
