"""Nights without work: what the service learns of its machines' noise before the first series comes."""

from bench.replay_player import Player
from bench.replay_series import base_of
from server.lab.models import Machine, Trial
from server.lab.trials.asking import Ask, want_trial

_BOOTS = 4


def measure_noise(player: Player, trials: int) -> None:
    """So many A/A trials of each benchmark on each physical machine, as nights without work would bring them."""
    done: set[tuple[str, ...]] = set()
    for study in player.truth.studies.values():
        base = base_of(study)
        for machine in Machine.objects.filter(uarch__name__in=study.uarchs, virtual=False):
            cells = (machine.name, *study.benchmarks)
            for number in range(0 if cells in done else trials):
                want_trial(
                    Ask(
                        key=f"noise:{machine.name}:{study.name}:{number}",
                        purpose=Trial.Purpose.NOISE,
                        base=base,
                        patched=base,
                        looks=(_BOOTS,),
                        trace=base.sha[:16],
                        machines=(machine,),
                        benchmarks=tuple(study.benchmarks),
                    )
                )
            done.add(cells)
    player.settle()
