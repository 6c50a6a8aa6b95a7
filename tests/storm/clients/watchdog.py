"""A client that hangs within its library begins again, as a new program in the same process.

librdkafka 2.16 hangs for good when brokers come and go: it takes those that are down off its list, and then waits for a
coordinator that it never connects to again. `send_offsets_to_transaction` knows no timeout there (its issues 5456 and
5511), nor does `commit`, and `committed` of a consumer answers _WAIT_COORD for ever. A program of aiokafka was seen to
hang, though each of its calls has a timeout, after the sender of its transactional producer had ended by an error. What
such a client was about to write is in doubt, as that of a client that was killed is.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

HANGS = "hangs and begins again"
HANGS_AFTER_S = 60
LOOK_EVERY_S = 0.05


class Watchdog:
    """Without `alive` for `within_s` seconds, `on_hang` is called in another thread."""

    def __init__(self, within_s: float, on_hang: Callable[[], None]) -> None:
        self._within_s = within_s
        self._on_hang = on_hang
        self._timer: threading.Timer | None = None

    def alive(self) -> None:
        self.stop()
        self._timer = threading.Timer(self._within_s, self._on_hang)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def stopping_at_sigterm() -> threading.Event:
    """Call before there are other threads: all are to have the signal blocked.

    It stays pending, so that a program that takes this one's place finds it too. A handler would run in the main thread
    alone, and never in one that hangs."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    stopping = threading.Event()
    threading.Thread(target=_look_out, args=(stopping,), daemon=True).start()
    return stopping


def begin_again(name: str) -> None:
    """Does not return. A client that was to stop has nothing left to do."""
    faulthandler.dump_traceback()
    if _is_to_stop():
        os._exit(0)
    logging.getLogger(name).warning(HANGS)
    os.execv(sys.executable, sys.orig_argv)


def _look_out(stopping: threading.Event) -> None:
    while not _is_to_stop():
        time.sleep(LOOK_EVERY_S)
    stopping.set()


def _is_to_stop() -> bool:
    return signal.SIGTERM in signal.sigpending()
