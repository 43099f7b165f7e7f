"""The boots of a session, and the order in which its two kernels have them."""

from collections.abc import Sequence

from server.core.states import record_creations
from server.lab.models import Boot, BootState, Session

# Balanced against drift: each kernel stands as often early as late.
_INTERLEAVED = (Boot.Arm.BASE, Boot.Arm.PATCHED, Boot.Arm.PATCHED, Boot.Arm.BASE)


def boot_order(boots_per_side: int) -> list[str]:
    """Arms in the order of their boots: A B B A A B B A ..., as many of each arm as asked for."""
    return balanced_order(boots_per_side, boots_per_side, 0)


def balanced_order(base: int, patched: int, start: int) -> list[str]:
    """Arms of so many boots of each kernel, from position `start` of a session on.

    Of unequal numbers the smaller is spread over the larger, so that a kernel whose boots are repeated does not stand
    at the end alone.
    """
    counts = {Boot.Arm.BASE: base, Boot.Arm.PATCHED: patched}
    given = dict.fromkeys(counts, 0)
    order: list[str] = []
    for position in range(start, start + base + patched):
        usual = _INTERLEAVED[position % 4]
        # Compared as products: shares of what each arm gets in all, without division.
        behind = given[Boot.Arm.BASE] * patched - given[Boot.Arm.PATCHED] * base
        arm = usual if behind == 0 else Boot.Arm.PATCHED if behind > 0 else Boot.Arm.BASE
        if given[arm] == counts[arm]:
            arm = Boot.Arm.PATCHED if arm == Boot.Arm.BASE else Boot.Arm.BASE
        given[arm] += 1
        order.append(arm)
    return order


def plan_boots(session: Session, arms: Sequence[str], start: int = 0) -> None:
    """Plan boots of these arms from position `start` of the session on, in a few queries however many they are."""
    boots = [
        Boot(session=session, position=position, arm=arm, state=BootState.PLANNED, trace=session.trace)
        for position, arm in enumerate(arms, start)
    ]
    record_creations(Boot.objects.bulk_create(boots))
