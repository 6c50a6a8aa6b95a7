"""The tree of commands; a command's module is imported when it is named."""

from importlib import import_module

import click

COMMANDS = {
    "serve": "ottla.cli.commands.serve:serve_command",
    "topics": "ottla.cli.commands.topics:topics",
    "partitions": "ottla.cli.commands.partitions:partitions",
    "groups": "ottla.cli.commands.groups:groups",
    "cluster": "ottla.cli.commands.cluster:cluster",
    "produce": "ottla.cli.commands.produce:produce",
    "consume": "ottla.cli.commands.consume:consume",
    "health": "ottla.cli.commands.health:health",
    "ping": "ottla.cli.commands.ping:ping",
    "pipeline": "ottla.cli.commands.pipeline:pipeline",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so.
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click calls it so.
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{target} is no command"
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="ottla", message="%(package)s %(version)s")
def cli() -> None:
    """A broker that speaks Kafka's wire protocol, and the tools to talk to any such broker."""
