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

UNWRITTEN = 1
"""The exit status of a command that did its work, and could not write all that it had to say."""


def command() -> None:
    """`main` in a process of its own, which ends at once."""
    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        _end_at_once(ended.code or 0)


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
        _run(sys.argv[2:])
    from ottla.cli.app import cli

    cli(prog_name="ottla")


def _run(arguments: list[str]) -> None:
    """Raises SystemExit, as all commands do."""
    if arguments[:1] == ["--"] and arguments[1:]:
        from ottla.cli.operations.run import RunOptions, status_of

        sys.exit(status_of(RunOptions(tuple(arguments[1:]))))
    from ottla.cli.commands.run import run_command

    run_command(arguments, prog_name="ottla run")


def _end_at_once(status: int) -> None:
    """What Python does at its end: it waits for threads and does what was put off until then. It would take all modules
    apart after that, for a seventh of the time that a short command takes."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in filter(None, (sys.stderr, sys.stdout)):
        try:
            stream.flush()
        except BrokenPipeError:
            status = status or UNWRITTEN
        except OSError as error:
            status = status or UNWRITTEN
            with suppress(OSError):
                os.write(2, f"ottla: the output is not whole: {error.strerror}\n".encode())
    os._exit(status)
