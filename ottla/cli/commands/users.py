"""`ottla users`: who may log in by SCRAM."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import click
from click.core import ParameterSource

from ottla.cli.client import Client
from ottla.cli.failures import ClientError
from ottla.cli.names import CommandGroup, complete_users
from ottla.cli.operations import users as operations
from ottla.cli.operations.first_user import exists_already, store_users
from ottla.cli.output import confirm, progress
from ottla.cli.session import Session, broker_options
from ottla.cluster.scram_users import ScramUpsertion
from ottla.security.client import Secret
from ottla.security.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS, ScramHash

PASSWORD_BYTES_MAX = 1024

_mechanism_option = click.option(
    "--mechanism", "mechanisms", type=click.Choice(list(SCRAM_MECHANISMS)), multiple=True,
    help="Only this mechanism; repeatable.  [default: all]",
)  # fmt: skip


@click.group(cls=CommandGroup)
def users() -> None:
    """List, describe, create and delete users who log in by SCRAM."""


@users.command("list")
@broker_options
def list_users(session: Session) -> None:
    """List all users with a SCRAM credential."""
    found = session.run(operations.list_users)
    if session.output.as_json:
        session.output.json([asdict(user) for user in found])
        return
    rows = [(user.name, ", ".join(each.mechanism for each in user.mechanisms)) for user in found]
    session.output.table(("user", "mechanisms"), rows)


@users.command("describe")
@click.argument("names", metavar="USER...", nargs=-1, required=True, shell_complete=complete_users)
@broker_options
def describe_users(session: Session, names: Sequence[str]) -> None:
    """Show the mechanisms of users and their iterations. Salts and keys are not shown by any broker."""
    found = session.run(lambda client: operations.list_users(client, list(dict.fromkeys(names))))
    if session.output.as_json:
        session.output.json([asdict(user) for user in found])
        return
    rows = [(user.name, each.mechanism, each.iterations) for user in found for each in user.mechanisms]
    session.output.table(("user", "mechanism", "iterations"), rows)


@users.command("create")
@click.argument("name", metavar="USER")
@_mechanism_option
@click.option(
    "--iterations", type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX), default=ITERATIONS_MIN, show_default=True,
    help="How often the password is hashed.",
)  # fmt: skip
@click.option(
    "--new-password-file", metavar="FILE", type=click.File("rb"),
    help="Read the password from FILE, - for standard input.",
)  # fmt: skip
@click.option("--replace", "replaces", is_flag=True, help="Give a user who exists a new password.")
@click.option(
    "--data-dir", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Write to the data directory of `ottla serve`, on which no broker runs, in place of asking a broker.",
)  # fmt: skip
@broker_options
def create_user(
    session: Session,
    name: str,
    mechanisms: Sequence[str],
    iterations: int,
    new_password_file: BinaryIO | None,
    replaces: bool,
    data_dir: Path | None,
) -> None:
    """Create a user, or give one a new password with --replace.

    The password is asked for, or read from standard input where that is no terminal. It is never given on the command
    line, which other users of the machine can see, and never sent: brokers get a salted hash of it.

    With --data-dir, the first user of a cluster is written before its first broker starts.
    """
    if data_dir is not None and _was_given("bootstrap"):
        raise click.UsageError("give either --bootstrap or --data-dir")
    _check_name(name)
    password = _password(new_password_file)
    wanted = [operations.salted_upsertion(name, scram, iterations, password) for scram in _chosen(mechanisms)]
    if data_dir is None:
        session.run(lambda client: _create(client, wanted, replaces=replaces))
    else:
        _write(data_dir, wanted, replaces=replaces)
    created = [ScramHash(each.mechanism).mechanism for each in wanted]
    if session.output.as_json:
        session.output.json({"user": name, "mechanisms": created, "iterations": iterations})
    session.output.say(f"created user {name} with {', '.join(created)}")


async def _create(client: Client, wanted: Sequence[ScramUpsertion], *, replaces: bool) -> None:
    known = {
        (user.name, each.mechanism)
        for user in ([] if replaces else await operations.list_users(client))
        for each in user.mechanisms
    }
    for each in wanted:
        mechanism = ScramHash(each.mechanism).mechanism
        if (each.user, mechanism) in known:
            raise ClientError(exists_already(each.user, mechanism))
    for each in wanted:
        await operations.upsert(client, each)


def _write(data_dir: Path, wanted: Sequence[ScramUpsertion], *, replaces: bool) -> None:
    try:
        store_users(data_dir, wanted, replaces=replaces)
    except ClientError as error:
        raise click.ClickException(str(error)) from error


@users.command("delete")
@click.argument("names", metavar="USER...", nargs=-1, required=True, shell_complete=complete_users)
@_mechanism_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def delete_users(session: Session, names: Sequence[str], mechanisms: Sequence[str], yes: bool) -> None:
    """Delete users, or one of their mechanisms. Connections that are logged in stay."""
    confirm(f"Delete {', '.join(names)}?", yes=yes)

    async def delete(client: Client) -> None:
        chosen = {scram.mechanism: scram for scram in _chosen(mechanisms)}
        described = await operations.list_users(client, list(dict.fromkeys(names)))
        for user in progress(described, "deleting"):
            theirs = [chosen[each.mechanism] for each in user.mechanisms if each.mechanism in chosen]
            if not theirs:
                raise ClientError(f"cannot delete user {user.name}: there is no password for {', '.join(chosen)}")
            for scram in theirs:
                await operations.delete(client, user.name, scram)
            session.output.say(f"deleted user {user.name} with {', '.join(each.mechanism for each in theirs)}")

    session.run(delete)
    if session.output.as_json:
        session.output.json({"deleted": list(dict.fromkeys(names))})


def _chosen(mechanisms: Sequence[str]) -> list[ScramHash]:
    return [SCRAM_MECHANISMS[name] for name in SCRAM_MECHANISMS if not mechanisms or name in mechanisms]


def _was_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.UsageError("the name is not UTF-8 text") from None


def _password(file: BinaryIO | None) -> Secret:
    """Of a file its line, without the end of the line. Raises click.ClickException, which does not show it."""
    if file is None and sys.stdin.isatty():
        return Secret(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    source = sys.stdin.buffer if file is None else file
    data = source.read(PASSWORD_BYTES_MAX + len(b"\r\n") + 1)
    line = data.removesuffix(b"\n").removesuffix(b"\r")
    if not line:
        raise click.ClickException("the password is empty")
    if b"\n" in line or len(line) > PASSWORD_BYTES_MAX:
        raise click.ClickException(f"the password is more than one line, or than {PASSWORD_BYTES_MAX} bytes")
    try:
        return Secret(line.decode())
    except UnicodeDecodeError:
        raise click.ClickException("the password is not UTF-8 text") from None
