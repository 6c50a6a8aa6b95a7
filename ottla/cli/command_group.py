"""Groups of commands that help: whole sentences in their lists, and a guess at what a wrong name was meant to be."""

from difflib import get_close_matches

import click

# Of the list of commands; click cuts a longer sentence.
SENTENCE_MAX = 1000


class CommandGroup(click.Group):
    """Its commands are also found by their singular or plural."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        names = self.list_commands(ctx)
        if cmd_name in names:
            return self.find_command(ctx, cmd_name)
        other = cmd_name[:-1] if cmd_name.endswith("s") else f"{cmd_name}s"
        return self.find_command(ctx, other) if other in names else None

    def find_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command with exactly this name."""
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}.{_guess(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            command = self.find_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(SENTENCE_MAX)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _guess(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, n=3)
    if not close:
        return f" There are {', '.join(names)}."
    return f" Did you mean {' or '.join(close)}?"
