"""`KAFKA_*` variables as properties, by the rules of apache/kafka's image (`kafka.docker.KafkaDockerWrapper` of
Kafka 4.1, and the script `configure` before it).

    KAFKA_NUM_PARTITIONS=3                     num.partitions=3
    KAFKA_LISTENER_NAME_TC__0_SSL_KEY=...      listener.name.tc_0.ssl.key=...
    KAFKA_SASL_A___B=...                       sasl.a-b=...
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.broker.config.options import ConfigError
from ottla.broker.config.properties import parse_properties

PREFIX = "KAFKA_"
ROOT_LEVEL = "KAFKA_LOG4J_ROOT_LOGLEVEL"
JAVA_OPTIONS = "KAFKA_OPTS"
NO_PROPERTIES = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        JAVA_OPTIONS,
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        ROOT_LEVEL,
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    }
)
"""Variables of Kafka's scripts and of the virtual machine."""

SECRETS = Path("/etc/kafka/secrets")
"""Where `KAFKA_SSL_*_FILENAME` and `KAFKA_SSL_*_CREDENTIALS` are."""
_FILES = {
    "ssl.keystore.filename": "ssl.keystore.location",
    "ssl.truststore.filename": "ssl.truststore.location",
}
KEY_CREDENTIALS, KEY_PASSWORD = "ssl.key.credentials", "ssl.key.password"
_LEVELS = {
    "ALL": "debug",
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "FATAL": "error",
    "OFF": "error",
}


def property_name(variable: str) -> str:
    """As Kafka does it: behind the first `KAFKA_`, `___` is `-`, `__` is `_`, `_` is `.`. Dots that the name of the
    variable has are taken for underscores."""
    lowered = variable.removeprefix(PREFIX).lower()
    return lowered.replace("_", ".").replace("...", "-").replace("..", "_")


def properties_text(environment: Mapping[str, str], mounted: str = "") -> str:
    """What Kafka's image writes into `server.properties`: the mounted file, and below it what the variables say, which
    therefore holds. Kafka leaves the order of the variables open; here it is that of their names."""
    lines = [
        f"\n{property_name(name)}={value}"
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and name not in NO_PROPERTIES
    ]
    return mounted + "".join(lines)


def properties_of(environment: Mapping[str, str], mounted: str = "") -> dict[str, str]:
    """The properties of that file, with the key stores that the script `configure` adds to them. None at all: neither
    the file nor a variable says anything. Values with backslashes are read as Java reads them. Raises ConfigError."""
    properties = parse_properties(properties_text(environment, mounted))
    # Of a variable without a name behind its prefix.
    properties.pop("", None)
    for name, of_file in _FILES.items():
        if name in properties:
            properties.setdefault(of_file, str(SECRETS / properties.pop(name)))
    return properties


def key_password(credentials: str, secrets: Path = SECRETS) -> str:
    """The text of the file that KAFKA_SSL_KEY_CREDENTIALS names. Raises ConfigError."""
    path = secrets / credentials
    try:
        # As the shell's $(cat FILE) has it.
        return path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{KEY_CREDENTIALS}: cannot read {path}: {reason}") from None


def log_level(environment: Mapping[str, str]) -> str | None:
    """The level of the log that stands for the one of log4j; None where it is not given. Raises ConfigError."""
    given = environment.get(ROOT_LEVEL, "").strip()
    if not given:
        return None
    level = _LEVELS.get(given.upper())
    if level is None:
        raise ConfigError(f"{ROOT_LEVEL}={given}: expected one of {', '.join(_LEVELS)}")
    return level
