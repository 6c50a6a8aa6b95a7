"""`python -m ottla.cli.kafka_image TOOL ARGUMENT...`: one of Kafka's command-line tools, as the image has it.

`names` prints all of them, for the Dockerfile.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ottla.cli.kafka_image.tool_options import ToolError, run_ottla

OTHERS = {
    "kafka-acls": "`ottla acls`",
    "kafka-cluster": "`ottla cluster status`",
    "kafka-delete-records": "`ottla topics delete-records`",
    "kafka-dump-log": "`ottla log`",
    "kafka-get-offsets": "`ottla topics offsets`",
    "kafka-leader-election": "`ottla partitions elect`",
    "kafka-log-dirs": "`ottla brokers log-dirs`",
    "kafka-producer-perf-test": "`ottla perf`",
    "kafka-reassign-partitions": "`ottla partitions reassign`",
    "kafka-server-start": "/etc/kafka/docker/run",
    "kafka-server-stop": "a SIGTERM to the container",
    "kafka-transactions": "`ottla transactions`",
}
"""What does what a tool does that is not here."""
ZOOKEEPER = ("zookeeper-server-start", "zookeeper-server-stop")
CUB = "cub"


def tools() -> Mapping[str, Callable[[Sequence[str]], int]]:
    """Those that `ottla` commands can do the work of; they raise ToolError."""
    from ottla.cli.kafka_image import admin_tools, record_tools, storage_tool

    return {
        "kafka-broker-api-versions": admin_tools.api_versions,
        "kafka-configs": admin_tools.configs,
        "kafka-console-consumer": record_tools.consumer,
        "kafka-console-producer": record_tools.producer,
        "kafka-consumer-groups": admin_tools.consumer_groups,
        "kafka-storage": storage_tool.storage,
        "kafka-topics": admin_tools.topics,
    }


def main(arguments: Sequence[str]) -> int:
    """The exit status of a tool; a link that ends in `.sh` is the same tool."""
    name, *rest = arguments or [""]
    name = name.removesuffix(".sh")
    try:
        if name == "names":
            print(*tools(), *OTHERS, *ZOOKEEPER, CUB)
            return 0
        tool = tools().get(name)
        if tool is not None:
            return tool(rest)
        if name in ZOOKEEPER:
            print(f"{name}: there is no ZooKeeper in this image, and no broker that needs one")
            return 0
        if name == CUB:
            return _cub(rest)
        hint = f": {OTHERS[name]} does what it does" if name in OTHERS else ""
        raise ToolError(f"{name} is not in this image{hint}")
    except ToolError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def _cub(arguments: Sequence[str]) -> int:
    """`cub kafka-ready [-b HOST:PORT] [-c FILE] BROKERS SECONDS` waits for an answer, `cub zk-ready` for nothing.
    Raises ToolError."""
    action, *rest = arguments or [""]
    if action == "zk-ready":
        return 0
    if action != "kafka-ready":
        raise ToolError(f"{CUB} has no {action!r} here, only kafka-ready and zk-ready")
    where: list[str] = []
    while rest and rest[0] in ("-b", "-c", "--bootstrap_broker_list", "--config"):
        option, *rest = rest
        if not rest:
            raise ToolError(f"{CUB}: {option} needs a value")
        where += ["--bootstrap" if option in ("-b", "--bootstrap_broker_list") else "--command-config", rest.pop(0)]
    if len(rest) != 2 or not all(word.isdecimal() for word in rest):
        raise ToolError(f"{CUB} kafka-ready needs a number of brokers and a number of seconds")
    if int(rest[0]) > 1:
        raise ToolError(f"{CUB} kafka-ready: there is one broker in this image, and not {rest[0]}")
    deadline = time.monotonic() + int(rest[1])
    while True:
        try:
            return run_ottla("ping", "--request-timeout", "1", *where)
        except ToolError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
