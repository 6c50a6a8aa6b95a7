"""The tree of commands; a command's module is imported when it is named."""

from importlib import import_module

import click

from ottla.cli.names import CommandGroup

COMMANDS = {
    "serve": "ottla.cli.commands.serve:serve_command",
    "run": "ottla.cli.commands.run:run_command",
    "control": "ottla.cli.commands.control:control",
    "secure": "ottla.cli.commands.secure:secure",
    "topics": "ottla.cli.commands.topics:topics",
    "partitions": "ottla.cli.commands.partitions:partitions",
    "groups": "ottla.cli.commands.groups:groups",
    "transactions": "ottla.cli.commands.transactions:transactions",
    "users": "ottla.cli.commands.users:users",
    "acls": "ottla.cli.commands.acls:acls",
    "quotas": "ottla.cli.commands.quotas:quotas",
    "brokers": "ottla.cli.commands.brokers:brokers",
    "cluster": "ottla.cli.commands.cluster:cluster",
    "doctor": "ottla.cli.commands.doctor:doctor",
    "log": "ottla.cli.commands.log:log",
    "produce": "ottla.cli.commands.produce:produce",
    "consume": "ottla.cli.commands.consume:consume",
    "health": "ottla.cli.commands.health:health",
    "perf": "ottla.cli.commands.perf:perf",
    "ping": "ottla.cli.commands.ping:ping",
    "pipeline": "ottla.cli.commands.pipeline:pipeline",
    "wire": "ottla.cli.commands.wire:wire",
}


class LazyGroup(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so.
        return list(COMMANDS)

    def find_command(self, ctx: click.Context, name: str) -> click.Command:  # noqa: ARG002 - as of other groups.
        module, attribute = COMMANDS[name].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{name} is no command"
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="ottla", message="%(package)s %(version)s")
def cli() -> None:
    """A broker that speaks Kafka's wire protocol, and the tools to talk to any such broker."""
