"""kafka-topics, kafka-consumer-groups, kafka-configs and kafka-broker-api-versions, by `ottla` commands.

Lists and descriptions have the form of Kafka's, for scripts that read them.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ottla.cli.kafka_image.tool_options import (
    Given,
    ToolError,
    assignments,
    json_of_ottla,
    known,
    parsed,
    print_lines,
    run_ottla,
    say_of_ottla,
)

_TOPICS = known(
    "--topic --partitions --replication-factor --config --replica-assignment",
    "--create --list --describe --delete --alter --if-not-exists --if-exists --exclude-internal",
)
_GROUPS = known(
    "--group --topic --to-offset --shift-by --to-datetime --by-duration --timeout",
    "--list --describe --delete --reset-offsets --all-groups --all-topics --to-earliest --to-latest --execute "
    "--dry-run --offsets --members --state",
)
_CONFIGS = known(
    "--entity-type --entity-name --topic --broker --user --add-config --delete-config",
    "--alter --describe --all --entity-default",
)
_SCRAM = re.compile(r"SCRAM-SHA-(256|512)")


def topics(arguments: Sequence[str]) -> int:
    """kafka-topics. Raises ToolError."""
    given = parsed("kafka-topics", arguments, _TOPICS)
    action = given.one_of("--create", "--list", "--describe", "--delete", "--alter")
    where = given.connection()
    if action == "--list":
        return print_lines([each["name"] for each in _listed_topics(given, where)])
    if action == "--describe":
        names = _matching(given, where) if "--topic" in given else []
        if "--topic" in given and not names:
            return 0
        described = json_of_ottla("topics", "describe", *names, *where)
        return print_lines([line for each in described for line in _described_topic(each)])
    if action == "--delete":
        names = _matching(given, where)
        return run_ottla("topics", "delete", "--yes", *names, *where) if names else 0
    name = given.required("--topic")
    if action == "--create":
        return _create_topic(given, name, where)
    if "--config" in given:
        raise ToolError("kafka-topics does not alter configs: kafka-configs does")
    return run_ottla("topics", "alter", name, "--partitions", given.required("--partitions"), *where)


def _listed_topics(given: Given, where: Sequence[str]) -> list[Mapping[str, Any]]:
    internal = () if "--exclude-internal" in given else ("--internal",)
    return cast("list[Mapping[str, Any]]", json_of_ottla("topics", "list", *internal, *where))


def _matching(given: Given, where: Sequence[str]) -> list[str]:
    """--topic is a regular expression there, of whole names. Raises ToolError where none matches."""
    wanted = given.required("--topic")
    names = [each["name"] for each in _listed_topics(given, where) if re.fullmatch(wanted, each["name"])]
    if not names and "--if-exists" not in given:
        raise ToolError(f"topic {wanted} does not exist")
    return names


def _create_topic(given: Given, name: str, where: Sequence[str]) -> int:
    if "--replica-assignment" in given:
        raise ToolError("kafka-topics does not take --replica-assignment here: `ottla topics create --assignment` does")
    numbers = [
        word for option in ("--partitions", "--replication-factor") if option in given
        for word in (option, given.required(option))
    ]  # fmt: skip
    configs = [word for each in given.all("--config") for word in ("--config", each)]
    flags = [flag for flag in ("--if-not-exists",) if flag in given]
    return say_of_ottla(f"Created topic {name}.", "topics", "create", name, *numbers, *configs, *flags, *where)


def _described_topic(topic: Mapping[str, Any]) -> Iterator[str]:
    name, partitions = topic["name"], topic["partitions"]
    configs = ",".join(f"{key}={value}" for key, value in topic["configs"].items())
    counts = f"PartitionCount: {len(partitions)}\tReplicationFactor: {topic['replication_factor']}"
    yield f"Topic: {name}\t{counts}\tConfigs: {configs}"
    for each in partitions:
        leader = "none" if each["leader"] is None else each["leader"]
        replicas, isr = (",".join(map(str, each[key])) for key in ("replicas", "isr"))
        yield f"\tTopic: {name}\tPartition: {each['partition']}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"


def consumer_groups(arguments: Sequence[str]) -> int:
    """kafka-consumer-groups. Raises ToolError."""
    given = parsed("kafka-consumer-groups", arguments, _GROUPS)
    action = given.one_of("--list", "--describe", "--delete", "--reset-offsets")
    where = given.connection()
    if action == "--list":
        return print_lines([each["group_id"] for each in json_of_ottla("groups", "list", *where)])
    groups = ["--all"] if "--all-groups" in given else list(given.all("--group"))
    if not groups:
        raise ToolError("kafka-consumer-groups needs --group")
    if action == "--describe":
        if "--members" in given or "--state" in given:
            return run_ottla("groups", "describe", *groups, *where)
        described = json_of_ottla("groups", "describe", *groups, *where)
        return print_lines([line for group in described for line in _described_group(group)])
    if action == "--delete":
        return run_ottla("groups", "delete", "--yes", *groups, *where)
    options = ("--to-offset", "--shift-by", "--to-datetime", "--by-duration")
    values = [word for option in options if option in given for word in (option, given.required(option))]
    names = [word for each in given.all("--topic") for word in ("--topic", each)]
    flags = [flag for flag in ("--all-topics", "--to-earliest", "--to-latest", "--execute") if flag in given]
    return run_ottla("groups", "reset-offsets", given.required("--group"), *names, *values, *flags, *where)


def _described_group(group: Mapping[str, Any]) -> Iterator[str]:
    members = {each["member_id"]: each for each in group["members"]}
    yield ""
    yield "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    for row in group["partitions"]:
        member = members.get(row["member_id"], {})
        cells = [row["topic"], row["partition"], row["committed_offset"], row["log_end_offset"], row["lag"]]
        cells += [row["member_id"], member.get("host"), member.get("client_id")]
        yield " ".join("-" if cell is None else str(cell) for cell in (group["group_id"], *cells))


def configs(arguments: Sequence[str]) -> int:
    """kafka-configs, for topics, brokers and users. Raises ToolError."""
    tool = "kafka-configs"
    given = parsed(tool, arguments, _CONFIGS)
    action = given.one_of("--alter", "--describe")
    kind, name = _entity(given)
    where = given.connection()
    if action == "--describe":
        command = {"topics": ("topics", "describe"), "brokers": ("brokers", "configs"), "users": ("users", "describe")}
        if name is None and kind == "users":
            return run_ottla("users", "list", *where)
        return run_ottla(*command[kind], *(() if name is None else (name,)), *where)
    added = assignments(tool, given.all("--add-config"))
    removed = [each.strip() for text in given.all("--delete-config") for each in text.split(",")]
    if kind == "users":
        return _alter_user(given.required("--entity-name", "--user"), added, removed, where)
    if name is None and kind == "topics":
        raise ToolError(f"{tool} needs --entity-name")
    changes = [word for key, value in added.items() for word in ("--config", f"{key}={value}")]
    changes += [word for key in removed for word in ("--unset", key)]
    what = "defaults for brokers" if name is None else f"{kind.removesuffix('s')} {name}"
    which = "--all" if name is None else name
    return say_of_ottla(f"Completed updating config for {what}.", kind, "alter", which, *changes, *where)


def _entity(given: Given) -> tuple[str, str | None]:
    """What is configured: its kind, and its name; None: all, or their default."""
    for kind, option in (("topics", "--topic"), ("brokers", "--broker"), ("users", "--user")):
        if option in given:
            return kind, given.required(option)
    kind = given.required("--entity-type")
    if kind not in ("topics", "brokers", "users"):
        raise ToolError(f"kafka-configs has no {kind} here, only topics, brokers and users")
    return kind, given.last("--entity-name")


def _alter_user(name: str, added: Mapping[str, str], removed: Sequence[str], where: Sequence[str]) -> int:
    unknown = next((key for key in (*added, *removed) if not _SCRAM.fullmatch(key)), None)
    if unknown is not None:
        raise ToolError(f"kafka-configs does not alter {unknown} of users here: `ottla quotas` alters quotas")
    for mechanism, text in added.items():
        fields = assignments("kafka-configs", [text])
        iterations = ("--iterations", fields["iterations"]) if "iterations" in fields else ()
        options = ("--mechanism", mechanism, *iterations, "--replace", *where)
        status = _create_user(name, fields.get("password", ""), options)
        if status != 0:
            return status
    for mechanism in removed:
        status = run_ottla("users", "delete", name, "--yes", "--mechanism", mechanism, *where)
        if status != 0:
            return status
    return 0


def _create_user(name: str, password: str, options: Sequence[str]) -> int:
    """The password goes by a pipe: in the arguments of a command it would stand in its messages."""
    readable, writable = os.pipe()
    with os.fdopen(readable, "rb"):
        with os.fdopen(writable, "wb") as writing:
            writing.write(password.encode())
        said = f"Completed updating config for user {name}."
        return say_of_ottla(said, "users", "create", name, "--new-password-file", f"/dev/fd/{readable}", *options)


def api_versions(arguments: Sequence[str]) -> int:
    """kafka-broker-api-versions: mostly a health check. Raises ToolError."""
    given = parsed("kafka-broker-api-versions", arguments, known(""))
    return run_ottla("brokers", "api-versions", *given.connection())
