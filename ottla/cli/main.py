"""The `ottla` command.

`ottla serve` is on the clock: half of a broker's start would be spent importing click and what it imports. A plainly
written `serve` therefore goes straight to the broker, `health`, which runs every few seconds, straight to its page, a
`run` without options straight to its command, and everything else, wrong usage included, goes through click. A `run`
with options does without what the other commands have in common.
"""

import atexit
import os
import sys
from contextlib import suppress


def command() -> None:
    """`main` in a process of its own, which ends at once."""
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        _end_at_once(ended.code if isinstance(ended.code, int) else int(ended.code is not None))


def main() -> None:
    """Run the command that `sys.argv` names. Raises SystemExit with its exit status."""
    if sys.argv[1:2] == ["serve"]:
        from ottla.cli import serve_options as serve

        values = serve.parse_plain(sys.argv[2:])
        if values is not None:
            sys.exit(serve.serve(values))
    if sys.argv[1:2] == ["health"]:
        from ottla.cli import health

        question = health.parse_plain(sys.argv[2:])
        if question is not None:
            sys.exit(health.run(question))
    if sys.argv[1:2] == ["run"]:
        sys.exit(_run_status(sys.argv[2:]))
    from ottla.cli.app import cli

    cli(prog_name="ottla")


def _run_status(arguments: list[str]) -> int:
    """Of `ottla run`, which has done its work then."""
    if arguments[:1] == ["--"] and arguments[1:]:
        from ottla.cli.operations.run import RunOptions, status_of

        return status_of(RunOptions(tuple(arguments[1:])))
    from ottla.cli.commands.run import run_command

    try:
        run_command(arguments, prog_name="ottla run")
    except SystemExit as ended:
        # Of click, and always a number.
        return int(ended.code or 0)
    raise AssertionError("a command of click ends by SystemExit")


def _end_at_once(status: int) -> None:
    """What Python does at its end: it waits for threads and does what was put off until then. It would take all modules
    apart after that, for a seventh of the time that a short command takes."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)
