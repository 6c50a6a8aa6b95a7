"""A command as a child of this process, which waits for it and passes signals on.

While `BlockedSignals` is entered, signals are taken from the kernel's queue one at a time, by the thread that waits:
none interrupts a start, none is lost between the start of the child and the wait for it, and each says who sent it.
"""

import contextlib
import os
import signal
from collections.abc import Mapping
from shutil import which
from types import TracebackType
from typing import Final, Self

FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Python ignores them in this process; the child gets them as programs expect them.
_DEFAULT_IN_CHILD: Final = (signal.SIGPIPE, signal.SIGXFSZ)
# What shells add to the number of the signal that has ended a program.
STATUS_OF_SIGNALS: Final = 128
CANNOT_EXECUTE_STATUS: Final = 126
NOT_FOUND_STATUS: Final = 127


class CommandError(Exception):
    """The command did not start; the message is a sentence."""

    def __init__(self, message: str, status: int) -> None:
        """`status`: the exit status that shells have for it."""
        super().__init__(message)
        self.status = status


class BlockedSignals:
    """To be entered by the main thread before it starts others, which inherit the mask."""

    def __enter__(self) -> Self:
        # Where the parent had it ignored, the exit status of a child would be lost.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Those that came after the end of the command were meant for it.
        while self.received() is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def received(self) -> int | None:
        """A signal that has come and was not waited for."""
        info = signal.sigtimedwait(FORWARDED, 0)
        return None if info is None else info.si_signo

    def run(self, command: tuple[str, ...], environment: Mapping[str, str]) -> int:
        """The exit status of the command, 128 + N where signal N has ended it. Raises CommandError."""
        pid = self._start(command, environment)
        while True:
            info = signal.sigwaitinfo((*FORWARDED, signal.SIGCHLD))
            if info.si_signo == signal.SIGCHLD:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else STATUS_OF_SIGNALS - code
            elif info.si_code <= 0:
                # Of a process. The kernel's are those of the terminal, which sends them to the command as well.
                with contextlib.suppress(PermissionError):
                    os.kill(pid, info.si_signo)

    def _start(self, command: tuple[str, ...], environment: Mapping[str, str]) -> int:
        """Standard streams, other open files, process group and terminal are those of this process."""
        name = command[0]
        try:
            return os.posix_spawnp(name, command, environment, setsigmask=self._before, setsigdef=_DEFAULT_IN_CHILD)
        except FileNotFoundError:
            if which(name) is not None:
                sentence = f"{name} cannot be executed: the interpreter of its first line does not exist"
                raise CommandError(sentence, CANNOT_EXECUTE_STATUS) from None
            raise CommandError(f"{name}: there is no such command", NOT_FOUND_STATUS) from None
        except OSError as error:
            raise CommandError(f"{name} cannot be executed: {error.strerror}", CANNOT_EXECUTE_STATUS) from None
