"""The `ottla` command.

`ottla serve` is on the clock: half of a broker's start would be spent importing click and what it imports. A plainly
written `serve` therefore goes straight to the broker, `health`, which runs every few seconds, straight to its page, and
everything else, wrong usage included, goes through click. `run` needs click, and not what the other commands have in
common.
"""

import sys


def main() -> None:
    """Run the command that `sys.argv` names; ends the process with its exit status."""
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
        from ottla.cli.commands.run import run_and_end

        run_and_end(sys.argv[2:])
    from ottla.cli.app import cli

    cli(prog_name="ottla")
