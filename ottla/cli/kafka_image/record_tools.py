"""kafka-console-producer and kafka-console-consumer, by `ottla produce` and `ottla consume`."""

from collections.abc import Sequence

from ottla.cli.kafka_image.tool_options import Given, ToolError, assignments, known, parsed, run_ottla

_PRODUCER = known(
    "--topic --broker-list --property --reader-property --producer-property --command-property --producer.config "
    "--request-required-acks --compression-codec --batch-size --timeout --max-block-ms --request-timeout-ms",
    "--sync",
)
_CONSUMER = known(
    "--topic --group --max-messages --timeout-ms --partition --offset --property --formatter-property "
    "--consumer-property --command-property --consumer.config --isolation-level --include --whitelist",
    "--from-beginning --skip-message-on-error --enable-systest-events",
)
_READER = ("parse.key", "key.separator", "ignore.error", "null.marker")
_FORMATTER = (
    "print.key",
    "print.value",
    "print.partition",
    "print.offset",
    "key.separator",
)
_CLIENT = {"acks": "--acks", "compression.type": "--compression"}
_TAB = "\t"


def producer(arguments: Sequence[str]) -> int:
    """kafka-console-producer: lines of standard input. Raises ToolError."""
    tool = "kafka-console-producer"
    given = parsed(tool, arguments, _PRODUCER)
    reader = _properties(tool, given, ("--property", "--reader-property"), _READER)
    client = _properties(tool, given, ("--producer-property", "--command-property"), tuple(_CLIENT))
    words: list[str] = []
    if reader.get("parse.key") == "true":
        words += ["--key-separator", reader.get("key.separator", _TAB)]
    if "null.marker" in reader:
        words += ["--null-marker", reader["null.marker"]]
    acks = given.last("--request-required-acks") or client.get("acks")
    if acks is not None:
        words += ["--acks", "all" if acks == "-1" else acks]
    compression = given.last("--compression-codec") or client.get("compression.type")
    if compression is not None:
        words += ["--compression", compression]
    return run_ottla("produce", given.required("--topic"), *words, *given.connection("--producer.config"))


def consumer(arguments: Sequence[str]) -> int:
    """kafka-console-consumer: records as lines, until a limit. Raises ToolError."""
    tool = "kafka-console-consumer"
    given = parsed(tool, arguments, _CONSUMER)
    formatter = _properties(tool, given, ("--property", "--formatter-property"), _FORMATTER)
    client = _properties(
        tool, given, ("--consumer-property", "--command-property"), ("group.id", "auto.offset.reset", "isolation.level")
    )
    words = ["--format", _format(formatter)]
    group = given.last("--group") or client.get("group.id")
    from_beginning = "--from-beginning" in given or client.get("auto.offset.reset") == "earliest"
    offset = given.last("--offset")
    if offset == "earliest":
        from_beginning, offset = True, None
    elif offset == "latest":
        offset = None
    values = {
        "--group": group,
        "--offset": offset,
        "--partition": given.last("--partition"),
        "--max-messages": given.last("--max-messages"),
        "--timeout": _seconds(tool, given),
        "--include": given.last("--include", "--whitelist"),
        "--isolation": given.last("--isolation-level") or client.get("isolation.level"),
    }
    words += [word for name, value in values.items() if value is not None for word in (name, value)]
    if from_beginning:
        words.append("--from-beginning")
    topic = given.last("--topic")
    return run_ottla("consume", *(() if topic is None else (topic,)), *words, *given.connection("--consumer.config"))


def _properties(tool: str, given: Given, options: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Raises ToolError for one that is not among `names`."""
    found: dict[str, str] = {}
    for option in options:
        for text in given.all(option):
            # The value may be a comma.
            name, equals, value = text.partition("=")
            found |= {name: value} if equals else assignments(tool, [text])
    unknown = next((name for name in found if name not in names), None)
    if unknown is not None:
        raise ToolError(f"{tool} does not know the property {unknown} here, only {', '.join(names)}")
    return found


def _format(formatter: dict[str, str]) -> str:
    """Kafka's order: partition, offset, key, value."""
    fields = {
        "print.partition": "Partition:{partition}",
        "print.offset": "Offset:{offset}",
        "print.key": "{key}",
    }
    shown = [text for name, text in fields.items() if formatter.get(name) == "true"]
    if formatter.get("print.value", "true") == "true":
        shown.append("{value}")
    separator = formatter.get("key.separator", _TAB)
    return separator.replace("{", "{{").replace("}", "}}").join(shown)


def _seconds(tool: str, given: Given) -> str | None:
    text = given.last("--timeout-ms")
    if text is None:
        return None
    if not text.isdecimal():
        raise ToolError(f"{tool}: --timeout-ms {text} is no number of milliseconds")
    return str(int(text) / 1000)
