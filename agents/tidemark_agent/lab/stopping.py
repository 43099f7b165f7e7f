"""Being told to end: for now, by a deadline or the service, or for good, by a signal."""

import threading


class Stop(threading.Event):
    """An event that nobody can clear any more after `end`: what ends one boot must not hide that all is to end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_final = False

    def end(self) -> None:
        self.is_final = True
        self.set()

    def clear(self) -> None:
        super().clear()
        # The signal may come at any instant, here too.
        if self.is_final:
            self.set()
