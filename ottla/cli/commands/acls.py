"""`ottla acls`: who may do what with topics, groups, transactional ids and the cluster."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from ottla.cli.doctor.findings import counted
from ottla.cli.names import CommandGroup
from ottla.cli.operations import acls as operations
from ottla.cli.operations.acls import Grant, Holder, Resource
from ottla.cli.output import confirm
from ottla.cli.session import Session, broker_options
from ottla.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.authentication import parse_principal

F = TypeVar("F", bound=Callable[..., Any])
_NAMED_OPERATIONS = [each.name for each in AclOperation if each not in (AclOperation.UNKNOWN, AclOperation.ANY)]
_TYPES = {"topics": ResourceType.TOPIC, "groups": ResourceType.GROUP, "ids": ResourceType.TRANSACTIONAL_ID}


class Asked(NamedTuple):
    """What the options say, as they stand."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    ids: tuple[str, ...]
    cluster: bool
    pattern_type: str

    @property
    def resources(self) -> list[Resource]:
        named = [(kind, name) for field, kind in _TYPES.items() for name in getattr(self, field)]
        return [*named, (ResourceType.CLUSTER, CLUSTER_NAME)] if self.cluster else named


def _resource_options(pattern_types: Sequence[str]) -> Callable[[F], F]:
    options = (
        click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic; repeatable, * for all."),
        click.option("--group", "groups", metavar="NAME", multiple=True, help="A group; repeatable, * for all."),
        click.option(
            "--transactional-id", "ids", metavar="NAME", multiple=True, help="A transactional id; repeatable."
        ),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--resource-pattern-type",
            "pattern_type",
            type=click.Choice(pattern_types, case_sensitive=False),
            default="literal",
            show_default=True,
            help="Whether names are whole names or prefixes.",
        ),
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_operation_option = click.option(
    "--operation", "names", type=click.Choice(_NAMED_OPERATIONS, case_sensitive=False), multiple=True,
    help="An operation; repeatable.  [default: ALL]",
)  # fmt: skip


def _holder_options(command: F) -> F:
    for option in (
        click.option("--deny-host", "deny_hosts", metavar="ADDRESS", multiple=True, help="From where it is denied."),
        click.option("--allow-host", "allow_hosts", metavar="ADDRESS", multiple=True, help="From where it is allowed."),
        click.option(
            "--deny-principal", "denied", metavar="TYPE:NAME", multiple=True, help="Whom to deny it; repeatable."
        ),
        click.option(
            "--allow-principal",
            "allowed",
            metavar="TYPE:NAME",
            multiple=True,
            help="Whom to allow it, such as User:alice; repeatable.",
        ),
        click.option("--idempotent", is_flag=True, help="With --producer: also the idempotent write of old clusters."),
        click.option("--consumer", is_flag=True, help="What a consumer needs of the topics and groups."),
        click.option("--producer", is_flag=True, help="What a producer needs of the topics and transactional ids."),
        _operation_option,
    ):
        command = option(command)
    return command


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, add and remove ACLs: who may do what with which resources."""


@acls.command("add")
@_resource_options(["literal", "prefixed"])
@_holder_options
@broker_options
def add_acls(session: Session, **options: Any) -> None:
    """Allow or deny principals operations on resources. A denial counts for more than what allows."""
    asked = _asked(options)
    holders = _holders(options)
    if not holders:
        raise click.UsageError("name whom with --allow-principal or --deny-principal")
    grants = _grants(asked, options)
    if not grants:
        raise click.UsageError("name what with --topic, --group, --transactional-id or --cluster")
    wanted = operations.bindings(grants, holders, PatternType[asked.pattern_type.upper()])

    async def add(client: Any) -> None:
        operations.check_operations(grants)
        await operations.add(client, wanted)

    session.run(add)
    if session.output.as_json:
        session.output.json([_shown(acl) for acl in wanted])
        return
    session.output.say(f"added {counted(len(wanted), 'ACL')}")


@acls.command("list")
@_resource_options(["literal", "prefixed", "any", "match"])
@click.option("--principal", "principals", metavar="TYPE:NAME", multiple=True, help="Only of these principals.")
@broker_options
def list_acls(session: Session, principals: Sequence[str], **options: Any) -> None:
    """List ACLs, all of them or those of resources.

    With --resource-pattern-type match, those that decide about a resource of the name: its own, those of prefixes of
    it, and those of all resources.
    """
    asked = _asked(options)
    filters = [each._replace(principal=whose) for each in _filters(asked) for whose in principals or (None,)]
    found = session.run(lambda client: operations.find(client, filters))
    if session.output.as_json:
        session.output.json([_shown(acl) for acl in found])
        return
    session.output.table(
        ("type", "name", "pattern", "principal", "host", "operation", "permission"),
        [tuple(_shown(acl).values()) for acl in found],
    )


@acls.command("remove")
@_resource_options(["literal", "prefixed", "any", "match"])
@_holder_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def remove_acls(session: Session, yes: bool, **options: Any) -> None:
    """Remove ACLs: those of the principals that are named, or all of the resources."""
    asked = _asked(options)
    if not asked.resources:
        raise click.UsageError("name what with --topic, --group, --transactional-id or --cluster")
    holders = _holders(options)
    if holders:
        grants = _grants(asked, options)
        filters = [
            AclFilter(*acl) for acl in operations.bindings(grants, holders, PatternType[asked.pattern_type.upper()])
        ]
    else:
        filters = _filters(asked)
    what = "these ACLs" if holders else "all ACLs of these resources"
    confirm(f"Remove {what}: {', '.join(f'{kind.name} {name}' for kind, name in asked.resources)}?", yes=yes)
    count = session.run(lambda client: operations.remove(client, filters))
    if session.output.as_json:
        session.output.json({"removed": count})
        return
    session.output.say(f"removed {counted(count, 'ACL')}")


def _asked(options: dict[str, Any]) -> Asked:
    return Asked(*(options[field] for field in Asked._fields))


def _holders(options: dict[str, Any]) -> list[Holder]:
    """Raises UsageError."""
    holders: list[Holder] = []
    sides = (("allowed", "allow_hosts", Permission.ALLOW), ("denied", "deny_hosts", Permission.DENY))
    for principals, hosts, permission in sides:
        if options[hosts] and not options[principals]:
            raise click.UsageError(f"--{hosts.replace('_', '-').removesuffix('s')} needs a principal to go with it")
        for principal in options[principals]:
            try:
                parse_principal(principal)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            holders += [(principal, host, permission) for host in options[hosts] or (WILDCARD,)]
    return holders


def _grants(asked: Asked, options: dict[str, Any]) -> list[Grant]:
    """Raises UsageError."""
    if not (options["producer"] or options["consumer"]):
        if options["idempotent"]:
            raise click.UsageError("--idempotent goes with --producer")
        chosen = [AclOperation[name.upper()] for name in options["names"]] or [AclOperation.ALL]
        return [(resource, operation) for resource in asked.resources for operation in chosen]
    if options["names"] or options["denied"]:
        raise click.UsageError("--producer and --consumer say which operations are allowed: give neither with them")
    if not asked.topics or (options["consumer"] and not asked.groups):
        raise click.UsageError("--producer needs --topic, and --consumer needs --topic and --group")
    grants: list[Grant] = []
    if options["producer"]:
        grants += operations.producer_grants(asked.topics, asked.ids, is_idempotent=options["idempotent"])
    if options["consumer"]:
        grants += operations.consumer_grants(asked.topics, asked.groups)
    return grants


def _filters(asked: Asked) -> list[AclFilter]:
    pattern_type = PatternType[asked.pattern_type.upper()]
    if not asked.resources:
        return [AclFilter()]
    return [AclFilter(kind, name, pattern_type) for kind, name in asked.resources]


def _shown(acl: AclBinding) -> dict[str, str]:
    return {
        "type": acl.resource_type.name,
        "name": acl.name,
        "pattern": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
