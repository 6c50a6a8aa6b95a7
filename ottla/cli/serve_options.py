"""`ottla serve`: its options, and the way from them to the broker that imports as little as it can.

One table describes the options. `parse_plain` reads it for command lines written without a mistake;
`serve_command` makes a click command of the same table, for help and for saying what is wrong.
"""

import gc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.protocol.address import is_everywhere, parse_address

# As wide as Kafka's protocol has them.
NODE_ID_MAX = (1 << 31) - 1


class ServeOption(NamedTuple):
    name: str
    help: str
    metavar: str | None = None
    default: str | bool | int | tuple[str, ...] | None = None
    choices: tuple[str, ...] = ()
    is_flag: bool = False
    is_repeated: bool = False
    is_number: bool = False

    @property
    def key(self) -> str:
        """The name of the field of ServeOptions that it fills."""
        return "settings" if self.name == "--set" else self.name.removeprefix("--").replace("-", "_")


OPTIONS = (
    ServeOption(
        "--listen",
        "Address to accept connections on; port 0 is any free port. Default: 127.0.0.1:9092. "
        "For several addresses, use the property listeners.",
        "HOST:PORT",
    ),
    ServeOption("--advertise", "The address that clients get; default: --listen, or the host name.", "HOST:PORT"),
    ServeOption("--data-dir", "Directory for topics and offsets.", "DIR", "./ottla-data"),
    ServeOption(
        "--ephemeral", "Keep the data in a temporary directory that is removed at exit.", default=False, is_flag=True
    ),
    ServeOption("--brokers", "Number of brokers in this process, on consecutive ports.", "N", 1, is_number=True),
    ServeOption("--node-id", "Id of the broker in its cluster, or of the first one of --brokers.", "N", is_number=True),
    ServeOption(
        "--metadata",
        "Metadata store of a cluster of several processes; by default the data directory. With TLS etcds://...",
        "etcd://HOST:PORT[,HOST:PORT...]",
    ),
    ServeOption(
        "--admin",
        "Address for health and metrics over HTTP, as the property ottla.admin.listener; port 0 is any free port.",
        "HOST:PORT",
    ),
    ServeOption(
        "--secure",
        "For development: TLS, a login and an authorizer, with keys and users in DIR, which the first start makes.",
        "DIR",
    ),
    ServeOption("--config", "File with Kafka's server properties.", "FILE"),
    ServeOption(
        "--set",
        "One of Kafka's server properties; repeatable. KEY=@FILE for a secret.",
        "KEY=VALUE",
        (),
        is_repeated=True,
    ),
    ServeOption(
        "--kafka-env",
        "Read KAFKA_* variables and CLUSTER_ID as apache/kafka's image does, over those of --config, and print the "
        "lines of Kafka's log that say it is ready: for containers (docs/image.md).",
        default=False,
        is_flag=True,
    ),
    ServeOption(
        "--testing",
        "For tests (docs/control.md): all that the brokers hold can be deleted, faults are injected, and --control "
        "serves. Not with --metadata, nor on data that brokers in production have written.",
        default=False,
        is_flag=True,
    ),
    ServeOption(
        "--control",
        "With --testing, the address for control over HTTP; port 0 is any free port.",
        "HOST:PORT|unix:PATH",
    ),
    ServeOption(
        "--control-file", "File that gets the address of --control and its token, for its owner alone.", "FILE"
    ),
    ServeOption("--control-open", "Control without a token, on loopback addresses.", default=False, is_flag=True),
    ServeOption(
        "--control-host",
        "A host name that clients of --control may use beside localhost; repeatable.",
        "NAME",
        (),
        is_repeated=True,
    ),
    ServeOption(
        "--testing-remote",
        "With --testing, allow addresses other than loopback; --control needs its token there.",
        default=False,
        is_flag=True,
    ),
    ServeOption(
        "--capture",
        "Write what clients and brokers send each other to FILE, without logins, for `ottla wire` (docs/wire.md).",
        "FILE",
    ),
    ServeOption(
        "--capture-secrets", "Leave nothing out of --capture: the file lets others log in.", default=False, is_flag=True
    ),
    ServeOption(
        "--log-format",
        "Format of the log. Default: console on a terminal, else json.",
        None,
        None,
        ("console", "json"),
    ),
    ServeOption("--log-level", "Minimum level of the log.", None, "info", ("debug", "info", "warning", "error")),
)
_OF_TESTING = ("control", "control_file", "control_open", "control_host", "testing_remote")
_OF_CONTROL = ("control_file", "control_open", "control_host")
_NOT_WITH_KAFKA_ENV = ("listen", "advertise", "ephemeral", "brokers", "node_id", "metadata", "secure", "settings")
BY_NAME = {option.name: option for option in OPTIONS}


def defaults() -> dict[str, Any]:
    return {option.key: option.default for option in OPTIONS}


def parse_plain(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The options' values by key, or None on any mistake: click then reports it."""
    values = defaults()
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, text = argument.partition("=")
        option = BY_NAME.get(name)
        if option is None:
            return None
        if option.is_flag:
            if equals:
                return None
            values[option.key] = True
            continue
        given = text if equals else next(remaining, None)
        if given is None or (not equals and given.startswith("-")):
            return None
        value = _parse_value(option, given)
        if value is None:
            return None
        previous = values[option.key]
        values[option.key] = (*previous, given) if isinstance(previous, tuple) else value
    return values if usage_error(values) is None else None


def _parse_value(option: ServeOption, text: str) -> str | int | None:
    if option.is_number:
        is_short = len(text) <= len(str(NODE_ID_MAX))
        return int(text) if is_short and text.isascii() and text.isdecimal() else None
    if option.choices:
        return text if text in option.choices else None
    return text


def usage_error(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """The option that is wrong and a sentence that says why, or None."""
    for find in (_address_error, _cluster_error, _testing_error):
        wrong = find(values)
        if wrong is not None:
            return wrong
    if values["kafka_env"]:
        beside = next((key for key in _NOT_WITH_KAFKA_ENV if values[key] != defaults()[key]), None)
        if beside is not None:
            option = next(option for option in OPTIONS if option.key == beside)
            return "--kafka-env", f"it cannot be combined with {option.name}: variables say what that says"
    if values["ephemeral"] and values["data_dir"] != BY_NAME["--data-dir"].default:
        return "--ephemeral", f"--data-dir {values['data_dir']} names a directory, but --ephemeral uses a temporary one"
    if values["data_dir"] == "":
        return "--data-dir", "it names no directory"
    if values["capture"] == "":
        return "--capture", "it names no file"
    if values["capture_secrets"] and values["capture"] is None:
        return "--capture-secrets", "there is no --capture"
    for setting in values["settings"]:
        key, equals, _ = setting.partition("=")
        if not equals or not key.strip():
            return "--set", f"{setting!r} is not KEY=VALUE"
    return None


def _address_error(values: Mapping[str, Any]) -> tuple[str, str] | None:
    brokers = values["brokers"]
    admin = values["admin"]
    if isinstance(admin, str) and not _is_address(admin, port_min=0):
        return "--admin", f"{admin!r} is not HOST:PORT with a port up to 65535"
    for key in ("listen", "advertise"):
        address = values[key]
        if not isinstance(address, str):
            continue
        if not _is_address(address, port_min=0 if key == "listen" else 1):
            return f"--{key}", f"{address!r} is not HOST:PORT with a port up to 65535"
        if key == "advertise" and is_everywhere(parse_address(address).host):
            return f"--{key}", f"{address} is not an address that clients can connect to"
        if int(address.rpartition(":")[2]) + brokers - 1 > 65535:
            return f"--{key}", f"{address} and the {brokers - 1} ports that follow it are not all below 65536"
    return None


def _cluster_error(values: Mapping[str, Any]) -> tuple[str, str] | None:
    brokers, url, secure = values["brokers"], values["metadata"], values["secure"]
    if secure == "":
        return "--secure", "it names no directory"
    if secure is not None and url is not None:
        return "--secure", "it is for the brokers of one process, and not for a cluster with --metadata"
    if brokers < 1:
        return "--brokers", "a process runs at least one broker"
    if (values["node_id"] or 0) + brokers - 1 > NODE_ID_MAX:
        return "--node-id", f"ids of brokers are at most {NODE_ID_MAX}"
    if url is None:
        return None
    wrong = _wrong_url(url)
    if wrong is not None:
        return "--metadata", wrong
    if brokers > 1:
        return "--brokers", "with --metadata a process runs one broker"
    if values["node_id"] is None:
        return "--node-id", "every broker of a cluster needs an id of its own"
    return None


def _testing_error(values: Mapping[str, Any]) -> tuple[str, str] | None:
    given = [key for key in _OF_TESTING if values[key] != defaults()[key]]
    if given and not values["testing"] and not values["kafka_env"]:
        return f"--{given[0].replace('_', '-')}", "it needs --testing"
    if values["testing"] and values["metadata"] is not None:
        return "--testing", "it is for metadata of this process, and not for a cluster with --metadata"
    if values["testing"] and values["secure"] is not None:
        return "--testing", "it cannot be combined with --secure"
    of_control = [key for key in given if key in _OF_CONTROL]
    if of_control and values["control"] is None and not values["kafka_env"]:
        return f"--{of_control[0].replace('_', '-')}", "it needs --control"
    return None


def _wrong_url(url: str) -> str | None:
    from ottla.cluster.store import StoreError, parse_store_url

    try:
        parse_store_url(url)
    except StoreError as error:
        return str(error)
    return None


def _is_address(text: str, *, port_min: int) -> bool:
    try:
        parse_address(text, port_min=port_min)
    except ValueError:
        return False
    return True


def serve(values: Mapping[str, Any]) -> int:
    """Run the broker until SIGTERM, SIGINT or SIGHUP; returns the exit status."""
    # While it imports, Python's collector would look through what comes, again and again, and find all of it in use: a
    # twentieth of the start.
    gc.disable()
    from ottla.cli.operations.serve import ServeOptions, run

    gc.freeze()
    gc.enable()
    return run(ServeOptions(**values))
