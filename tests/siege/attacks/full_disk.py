"""A disk that is full, and comes back, again and again."""

import contextlib
import errno

from tests.siege.attacks.attack import Attack, May

BALLAST = "siege-ballast"
PIECE = bytes(64 << 10)
FULL_S = 2.0
CYCLE_S = 3.5


class FullDisk(Attack):
    """The disk is a small one of the broker's own (`SiegedBroker`), which this fills with a file."""

    name = "full-disk"
    may = May.DELAY
    needs_small_disk = True

    def run(self) -> None:
        ballast = self.target.data_dir / BALLAST
        try:
            for left_s in self.target.until_over():
                passed_s = self.target.duration_s - left_s
                # It ends with a disk that has room.
                if passed_s % CYCLE_S < FULL_S and left_s > 0.5:
                    self._fill()
                elif ballast.exists():
                    ballast.unlink()
                    self.done["times full"] += 1
                self.target.pause(0.02)
        finally:
            ballast.unlink(missing_ok=True)

    def _fill(self) -> None:
        """Whatever the broker has freed, too."""
        with (self.target.data_dir / BALLAST).open("ab", buffering=0) as file, contextlib.suppress(OSError):
            try:
                while True:
                    file.write(PIECE)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                while file.write(PIECE[:512]):
                    pass
