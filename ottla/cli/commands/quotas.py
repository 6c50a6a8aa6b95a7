"""`ottla quotas`: how much users, client ids and addresses may use of each broker."""

from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.names import CommandGroup
from ottla.cli.operations import quotas as operations
from ottla.cli.operations.quotas import NamedEntity
from ottla.cli.session import Session, broker_options
from ottla.security.quotas import ENTITY_TYPES, QUOTA_KEYS

_ENTITY = "ENTITY"
_KEYS = ", ".join(QUOTA_KEYS)


def _entity(_ctx: click.Context, _parameter: click.Parameter, words: Sequence[str]) -> NamedEntity:
    """Of `user=alice`, or `user` for the default; the name may have an equals sign."""
    parts: dict[str, str | None] = {}
    for word in words:
        kind, equals, name = word.partition("=")
        if kind not in ENTITY_TYPES or (equals and not name):
            raise click.BadParameter(f"{word} is not TYPE=NAME, or TYPE for the default, of {', '.join(ENTITY_TYPES)}")
        if kind in parts:
            raise click.BadParameter(f"{kind} is given twice")
        parts[kind] = name if equals else None
    return tuple((kind, parts[kind]) for kind in ENTITY_TYPES if kind in parts)


def _values(_ctx: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for pair in ",".join(texts).split(",") if texts else ():
        key, equals, text = pair.strip().partition("=")
        try:
            if not equals or not key:
                raise ValueError
            values[key] = float(text)
        except ValueError:
            raise click.BadParameter(f"{pair} is not KEY=NUMBER") from None
    return values


def _keys(_ctx: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> list[str]:
    return [key.strip() for key in ",".join(texts).split(",")] if texts else []


@click.group(cls=CommandGroup)
def quotas() -> None:
    """Describe and alter quotas: how much clients may use of each broker."""


@quotas.command("describe")
@click.argument("entity", metavar=f"[{_ENTITY}]...", nargs=-1, callback=_entity)
@broker_options
def describe_quotas(session: Session, entity: NamedEntity) -> None:
    """Describe quotas: all, or those of entities that have the parts that are given.

    An ENTITY is user=NAME, client-id=NAME or ip=ADDRESS; without a name, the default of those that have none of their
    own.
    """
    found = session.run(lambda client: operations.find(client, entity))
    if session.output.as_json:
        session.output.json([{"entity": dict(each.entity), "quotas": dict(each.quotas)} for each in found])
        return
    rows = [(each.shown, key, _number(value)) for each in found for key, value in sorted(each.quotas.items())]
    session.output.table(("entity", "quota", "value"), rows)


@quotas.command("alter")
@click.argument("entity", metavar=f"{_ENTITY}...", nargs=-1, required=True, callback=_entity)
@click.option(
    "--add-config", "values", metavar="KEY=NUMBER,…", multiple=True, callback=_values,
    help=f"Set quotas, of {_KEYS}; repeatable.",
)  # fmt: skip
@click.option(
    "--delete-config", "removed", metavar="KEY,…", multiple=True, callback=_keys, help="Take quotas away; repeatable.",
)  # fmt: skip
@click.option("--validate-only", is_flag=True, help="Only say whether it could be done.")
@broker_options
def alter_quotas(
    session: Session, entity: NamedEntity, values: dict[str, float], removed: list[str], validate_only: bool
) -> None:
    """Alter the quotas of a user, a client id, both together, or an address.

    An ENTITY is user=NAME, client-id=NAME or ip=ADDRESS; without a name, the default of those that have none of their
    own. A user with a client id is both: `ottla quotas alter user=alice client-id=app …`.
    """
    if not values and not removed:
        raise click.UsageError("say what with --add-config or --delete-config")

    async def change(client: Any) -> None:
        await operations.change(client, entity, values, removed, validate_only=validate_only)

    session.run(change)
    if session.output.as_json:
        session.output.json({"entity": dict(entity), "set": values, "removed": removed})
        return
    session.output.say(f"{'could alter' if validate_only else 'altered'} the quotas of {operations.shown(entity)}")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)
