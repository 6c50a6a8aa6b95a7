"""kafka-storage: `random-uuid`, and `format`, which gives a data directory its cluster id and its first users.

The directory is that of the variables and of the file of --config, as `ottla serve --kafka-env` finds it.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.broker.config.options import ConfigError
from ottla.cli.failures import ClientError
from ottla.cli.kafka_image.serving import FORMATTED_MARK, claim_directory, new_cluster_id
from ottla.cli.kafka_image.settings import image_settings
from ottla.cli.kafka_image.tool_options import ToolError, assignments, known, parsed
from ottla.cli.operations.first_user import store_users
from ottla.cli.operations.users import salted_upsertion
from ottla.cluster.scram_users import ScramUpsertion
from ottla.security.client import Secret
from ottla.security.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS
from ottla.storage.checkpoints import META_PROPERTIES
from ottla.storage.files import reason_of
from ottla.storage.meta_properties import DataDirectoryError

TOOL = "kafka-storage"
DATA_DIR = Path("/var/lib/kafka/data")
"""Of the image, where no property says which."""
_ALIASES = {
    "-t": "--cluster-id",
    "-c": "--config",
    "-g": "--ignore-formatted",
    "-S": "--add-scram",
    "-s": "--standalone",
}
# Of Kafka's quorum of controllers and its levels of features, which are not here.
_FORMAT = known(
    "--cluster-id --config --add-scram --feature --release-version --initial-controllers",
    "--ignore-formatted --standalone --no-initial-controllers",
)


def storage(arguments: Sequence[str], environment: Mapping[str, str] | None = None, otherwise: Path = DATA_DIR) -> int:
    """kafka-storage; `otherwise` is the directory where no property names one. Raises ToolError."""
    action, *rest = arguments or [""]
    if action == "random-uuid":
        print(new_cluster_id())
        return 0
    if action != "format":
        raise ToolError(f"{TOOL} has no {action!r} here, only format and random-uuid")
    given = parsed(TOOL, [_ALIASES.get(word, word) for word in rest], _FORMAT)
    cluster_id = given.required("--cluster-id")
    try:
        settings = image_settings(os.environ if environment is None else environment, _text(given.last("--config")))
    except ConfigError as error:
        raise ToolError(str(error)) from None
    directory = settings.data_dir or otherwise
    if (directory / META_PROPERTIES).exists():
        if "--ignore-formatted" in given:
            print(f"Log directory {directory} is already formatted.")
            return 0
        raise ToolError(f"Log directory {directory} is already formatted. Use --ignore-formatted to ignore it")
    _format(directory, settings.node_id, cluster_id, given.all("--add-scram"))
    print(f"Formatting {directory} with cluster id {cluster_id}.")
    return 0


def _text(config: str | None) -> str:
    """Of the file of properties. One that is not there, as /etc/kafka/kafka.properties, says nothing: the variables
    do."""
    try:
        return "" if config is None else Path(config).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        raise ToolError(f"{TOOL}: {config} is not a file of properties in UTF-8") from None


def _format(directory: Path, node_id: int, cluster_id: str, users: Sequence[str]) -> None:
    try:
        if users:
            store_users(directory, [_upsertion(user) for user in users], replaces=False)
        claim_directory(directory, node_id, cluster_id)
        (directory / FORMATTED_MARK).touch()
    except (ClientError, DataDirectoryError) as error:
        raise ToolError(str(error)) from None
    except OSError as error:
        raise ToolError(f"cannot use data directory {directory}: {reason_of(error)}") from None


def _upsertion(text: str) -> ScramUpsertion:
    """Of `SCRAM-SHA-256=[name=alice,password=secret,iterations=4096]`. Raises ToolError."""
    ((mechanism, fields_text),) = assignments(TOOL, [text]).items()
    scram = SCRAM_MECHANISMS.get(mechanism)
    if scram is None:
        raise ToolError(f"{TOOL}: {mechanism} is none of {', '.join(SCRAM_MECHANISMS)}")
    fields = assignments(TOOL, [fields_text])
    unknown = next((name for name in fields if name not in ("name", "password", "iterations")), None)
    if unknown is not None:
        raise ToolError(f"{TOOL}: --add-scram does not know {unknown} here, only name, password and iterations")
    if not (fields.get("name") and fields.get("password")):
        raise ToolError(f"{TOOL}: --add-scram needs name and password")
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ToolError(f"{TOOL}: iterations are a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return salted_upsertion(fields["name"], scram, int(iterations), Secret(fields["password"]))
