"""Signals that `ottla run` gets, and those that its command has."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_run import ENDED_WITHIN_S, OTTLA_RUN

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
# Prints each signal of the first name that it gets, until it gets one of the second.
COUNTER = """
import signal, sys
counted, end = (getattr(signal, name) for name in sys.argv[1:])
signal.pthread_sigmask(signal.SIG_BLOCK, {counted, end})
print("ready", sys.stdin.isatty(), flush=True)
while signal.sigwait({counted, end}) != end:
    print(counted.name, flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("name", FORWARDED)
def test_signal_is_passed_on_to_a_command_that_handles_it(name: str, tmp_path: Path) -> None:
    end = "SIGUSR1" if name == "SIGUSR2" else "SIGUSR2"
    command = [*OTTLA_RUN, "--data", str(tmp_path), "--", sys.executable, "-c", COUNTER, name, end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready False\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline().decode() == f"{name}\n"
        # Signals are passed on in their order: a second one of the first kind would come before this one.
        process.send_signal(getattr(signal, end))
        printed, said = process.communicate(timeout=ENDED_WITHIN_S)

    assert (process.returncode, printed, said) == (5, b"", b"")
    assert not list(tmp_path.iterdir())


def test_signal_ends_a_command_that_does_not_handle_it(tmp_path: Path) -> None:
    command = [*OTTLA_RUN, "--data", str(tmp_path), "--", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(ENDED_WITHIN_S) == 128 + signal.SIGTERM

    assert not list(tmp_path.iterdir())


def test_signal_of_a_terminal_reaches_the_command_once() -> None:
    """A terminal sends it to the whole foreground process group, the command among it."""
    terminal, slave = os.openpty()
    # A session leader that opens a terminal has it as its own.
    script = f'exec "$@" <{os.ttyname(slave)}'
    command = ["sh", "-c", script, "sh", *OTTLA_RUN, "--", sys.executable, "-c", COUNTER, "SIGINT", "SIGUSR2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready True\n"
        os.write(terminal, b"\x03")
        assert process.stdout.readline() == b"SIGINT\n"
        process.send_signal(signal.SIGUSR2)
        printed, said = process.communicate(timeout=ENDED_WITHIN_S)
    os.close(terminal)
    os.close(slave)

    assert (process.returncode, printed, said) == (5, b"", b"")


def test_signal_during_the_start_ends_it_without_the_command(tmp_path: Path) -> None:
    program = f"""
import os, signal, sys
from ottla.cli.main import main
from ottla.testing.testbed import Testbed

class Interrupted(Testbed):
    def start(self):
        super().start()
        os.kill(os.getpid(), signal.SIGTERM)

import ottla.cli.operations.run
ottla.cli.operations.run.Testbed = Interrupted
sys.argv[1:] = ["run", "--data", {str(tmp_path)!r}, "--", "echo", "started"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=ENDED_WITHIN_S)

    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")
    assert not list(tmp_path.iterdir())


# Those above are the C library's own.
NAMED = (1 << 31) - 1


def shown_signals(printed: str) -> dict[str, int]:
    """Sets of /proc/PID/status, as bits."""
    return {name: int(bits, 16) & NAMED for name, bits in (line.split(":") for line in printed.splitlines())}


@pytest.mark.parametrize("ignored", [(), ("HUP", "INT")])
def test_command_has_the_signal_mask_of_the_caller(ignored: tuple[str, ...]) -> None:
    """SIGPIPE as programs expect it, and what the caller ignores, as nohup does."""
    show = ("grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status")
    ignoring = ("env", *(f"--ignore-signal={name}" for name in ignored))

    with_broker, plain = (
        shown_signals(subprocess.check_output([*ignoring, *command], text=True))
        for command in ((*OTTLA_RUN, "--", *show), show)
    )

    assert with_broker == plain
    # The tests themselves may have been started with some ignored, as in the background of a script.
    for name in ignored:
        assert plain["SigIgn"] >> (signal.Signals[f"SIG{name}"] - 1) & 1


def test_status_is_not_lost_where_the_caller_ignores_sigchld() -> None:
    command = ["env", "--ignore-signal=CHLD", *OTTLA_RUN, "--", "sh", "-c", "exit 7"]

    assert subprocess.run(command, timeout=ENDED_WITHIN_S).returncode == 7


def test_runs_side_by_side_do_not_meet() -> None:
    command = [*OTTLA_RUN, "--", "sh", "-c", "echo $KAFKA_BOOTSTRAP_SERVERS; read line"]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    addresses = {each.stdout.readline() for each in both if each.stdout is not None}
    for each in both:
        each.communicate(b"end\n", timeout=ENDED_WITHIN_S)

    assert len(addresses) == 2
    assert [each.returncode for each in both] == [0, 0]
