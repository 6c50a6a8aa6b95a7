"""As whom a job comes to the brokers: Kafka's client properties, for Spark's connector and for producers of Python.

The file is read by the driver. Executors get what is in it, and in the files that it names, for they may run elsewhere.
"""

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any

from ottla.broker.config.client_properties import FILE_VARIABLE, PROTOCOL, ClientProperties
from ottla.broker.config.client_tls import client_tls, without_files
from ottla.pipeline.failures import PipelineError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """`properties` are Kafka's, `security.`, `sasl.` and `ssl.`, with texts in place of files."""

    properties: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def tls(self) -> SSLContext | None:
        found = ClientProperties(self.properties)
        return client_tls(found) if found.has_tls else None

    def of_connector(self) -> dict[str, str]:
        """Options of Spark's Kafka source."""
        return {f"kafka.{name}": text for name, text in self.properties.items()}

    def of_python(self) -> dict[str, Any]:
        """Arguments of aiokafka's clients. Not to be sent to executors: made where the client is."""
        found = ClientProperties(self.properties)
        login, tls = found.login, self.tls
        arguments: dict[str, Any] = {"security_protocol": found.protocol or "PLAINTEXT"}
        if tls is not None:
            arguments["ssl_context"] = tls
        if login is not None:
            arguments |= {
                "sasl_mechanism": login.mechanism,
                "sasl_plain_username": login.user,
                "sasl_plain_password": login.password.reveal(),
            }
        return arguments


NO_SECURITY = ClientSecurity()
"""Neither TLS nor a login."""


def read_clients(arguments: Namespace) -> ClientSecurity:
    """By `--command-config`; where `--bootstrap` was not given, it gets what the file says. Raises PipelineError."""
    path = arguments.command_config or os.environ.get(FILE_VARIABLE)
    try:
        properties = ClientProperties({}) if path is None else ClientProperties.read(Path(path))
        if arguments.bootstrap is None:
            named = os.environ.get(BOOTSTRAP_VARIABLE) or ",".join(map(str, properties.bootstrap or ()))
            arguments.bootstrap = named or DEFAULT_BOOTSTRAP
        values = without_files(properties)
        security = ClientSecurity(values)
        # So that what cannot be is said before Java starts.
        security.of_python()
    except ValueError as error:
        raise PipelineError(f"{path}: {error}" if path is not None else str(error)) from None
    if values and PROTOCOL not in values:
        raise PipelineError(f"{path}: {PROTOCOL} is missing, and the rest means nothing without it")
    return security
