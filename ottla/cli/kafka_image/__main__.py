"""`python -m ottla.cli.kafka_image TOOL ARGUMENT...`: one of Kafka's command-line tools, as the image has it.

`names` prints all of them, for the Dockerfile.
"""

import sys
from collections.abc import Callable, Mapping, Sequence

from ottla.cli.kafka_image.tool_options import ToolError

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


def tools() -> Mapping[str, Callable[[Sequence[str]], int]]:
    """By their names; they raise ToolError."""
    from ottla.cli.kafka_image import admin_tools, companions, record_tools, storage_tool

    return {
        "kafka-broker-api-versions": admin_tools.api_versions,
        "kafka-configs": admin_tools.configs,
        "kafka-console-consumer": record_tools.consumer,
        "kafka-console-producer": record_tools.producer,
        "kafka-consumer-groups": admin_tools.consumer_groups,
        "kafka-storage": storage_tool.storage,
        "kafka-topics": admin_tools.topics,
        companions.START: companions.start_zookeeper,
        companions.STOP: companions.stop_zookeeper,
        companions.CUB: companions.cub,
    }


def main(arguments: Sequence[str]) -> int:
    """The exit status of a tool; a link that ends in `.sh` is the same tool."""
    name, *rest = arguments or [""]
    name = name.removesuffix(".sh")
    try:
        if name == "names":
            print(*tools(), *OTHERS)
            return 0
        tool = tools().get(name)
        if tool is not None:
            return tool(rest)
        hint = f": {OTHERS[name]} does what it does" if name in OTHERS else ""
        raise ToolError(f"{name} is not in this image{hint}")
    except ToolError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
