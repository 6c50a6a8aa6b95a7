"""The admin listener with TLS: its certificates, and a connection that comes in by it."""

import ssl

from ottla.broker.admin.http import HttpConnection
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server_admin import ADMIN
from ottla.broker.config.server_tls import NONE
from ottla.broker.config.tls import KEYSTORE_LOCATION, LOOK_EVERY_MS, TRUSTSTORE_LOCATION, prefixed_properties
from ottla.broker.config.tls_context import server_context
from ottla.broker.logging import ADMIN_LOGGER
from ottla.broker.runtime import Runtime
from ottla.broker.server.tls_connection import TlsConnection, ciphertext_buffer


class AdminTls:
    """Raises ConfigError where the certificates cannot be used."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.ciphertext = ciphertext_buffer()
        self._properties = prefixed_properties(runtime.config, ADMIN)
        self._seen = self._properties.signatures()
        self._looked_ms = runtime.clock.now_ms()
        self._context = self._made()

    def context(self) -> ssl.SSLContext:
        """For a connection that comes now: with the files as they are, unless those there are now are broken."""
        now_ms = self.runtime.clock.now_ms()
        if now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
            seen = self._properties.signatures()
            if seen != self._seen:
                self._seen = seen
                self._reload()
        return self._context

    def accept(self, connection: HttpConnection) -> "AdminTlsConnection":
        return AdminTlsConnection(self, connection)

    def failed(self, why: str) -> None:
        self.runtime.log.logger(ADMIN_LOGGER).info("no TLS handshake with the admin listener", reason=why)

    def _reload(self) -> None:
        log = self.runtime.log.logger(ADMIN_LOGGER)
        try:
            self._context = self._made()
        except ConfigError as error:
            log.error("certificates of the admin listener are not replaced", reason=str(error))
        else:
            log.info("certificates of the admin listener replaced")

    def _made(self) -> ssl.SSLContext:
        settings, client_auth = self._properties.settings(), self.runtime.config.ottla_admin_ssl_client_auth
        if client_auth != NONE and settings.trusted is None:
            raise ConfigError(f"{ADMIN}ssl.client.auth: {client_auth} needs {ADMIN}{TRUSTSTORE_LOCATION}")
        try:
            return server_context(settings, client_auth)
        except ConfigError as error:
            raise ConfigError(f"the admin listener ({ADMIN}ssl.…): {error}") from None


def admin_tls(runtime: Runtime) -> AdminTls | None:
    """None where the properties ask for none. Raises ConfigError."""
    config = runtime.config
    if config.ottla_admin_ssl_keystore_location is not None:
        return AdminTls(runtime)
    key_store = f"{ADMIN}{KEYSTORE_LOCATION}"
    useless = next((name for name in config.names_set(f"{ADMIN}ssl.") if name != key_store), None)
    if useless is not None:
        raise ConfigError(f"{useless}: it needs {key_store}, without which there is no TLS")
    return None


class AdminTlsConnection(TlsConnection):
    """HTTP has its own time limit, from the accept on."""

    __slots__ = ("_owner",)

    def __init__(self, owner: AdminTls, connection: HttpConnection) -> None:
        super().__init__(connection, owner.context(), owner.ciphertext, owner.runtime.soon)
        self._owner = owner

    def _established(self) -> None:
        """HTTP begins with what comes next."""

    def _failed(self, why: str) -> None:
        self._owner.failed(why)
        self.close()
