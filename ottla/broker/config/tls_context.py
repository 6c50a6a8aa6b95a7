"""OpenSSL, set up as the properties say: what both sides of a connection make their TLS objects with."""

import os
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server_tls import NONE, REQUIRED, TLS_1_2, TLS_1_3
from ottla.broker.config.tls import CIPHER_SUITES, KeyStore, TlsSettings
from ottla.security.pem import ENCRYPTED, pem_of
from ottla.security.tls_failure import tls_failure

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_SUITES_1_3: Final = frozenset(("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"))
_CIPHERS: Final = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
}
_STEPS_MAX: Final = 5
_SUITES_1_2: Final = {
    f"TLS_ECDHE_{kind}_WITH_{name}": f"ECDHE-{kind}-{cipher}"
    for kind in ("ECDSA", "RSA")
    for name, cipher in _CIPHERS.items()
}


def server_context(settings: TlsSettings, client_auth: str) -> ssl.SSLContext:
    """`client_auth`: a value of `ssl.client.auth`. Raises ConfigError with a sentence."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    # One ticket is enough for the next connection of a client; OpenSSL would send two with each handshake.
    context.num_tickets = 1
    if client_auth != NONE:
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == REQUIRED else ssl.CERT_OPTIONAL
        # A resumed session is not verified, so the certificate could have expired since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises ConfigError with a sentence."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.checks_host
    context.verify_mode = ssl.CERT_REQUIRED
    if settings.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def why_no_handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """A sentence where the two cannot shake hands; names of hosts are not looked at. It takes some milliseconds."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    checks_host, client.check_hostname = client.check_hostname, False
    try:
        sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    finally:
        client.check_hostname = checks_host
    # Each takes a few steps at most, the last of which brings the server the client's certificate.
    for _ in range(_STEPS_MAX):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return tls_failure(error)
    return None


def _context(side: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    versions = list(settings.versions)
    if settings.cipher_suites:
        versions = _set_suites(context, settings.cipher_suites, versions)
    context.minimum_version = min(map(_VERSIONS.__getitem__, versions))
    context.maximum_version = max(map(_VERSIONS.__getitem__, versions))
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if settings.trusted is not None:
        # As Java: each certificate of the store is trusted by itself, be it a root, an authority below one, or a leaf.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=b"".join(settings.trusted))
        except ssl.SSLError as error:
            raise ConfigError(f"a certificate of the trust store cannot be read: {_reason(error)}") from None
    if settings.key_store is not None:
        _load_key(context, settings.key_store)
    return context


def _set_suites(context: ssl.SSLContext, names: tuple[str, ...], versions: list[str]) -> list[str]:
    """Gives the versions that have a suite."""
    unknown = next((each for each in names if each not in _SUITES_1_3 and each not in _SUITES_1_2), None)
    if unknown is not None:
        known = ", ".join((*sorted(_SUITES_1_3), *sorted(_SUITES_1_2)))
        raise ConfigError(f"{CIPHER_SUITES}: {unknown} is none of {known}")
    new, old = _SUITES_1_3.intersection(names), [_SUITES_1_2[each] for each in names if each in _SUITES_1_2]
    if new and new != _SUITES_1_3 and TLS_1_3 in versions:
        raise ConfigError(
            f"{CIPHER_SUITES}: of TLS 1.3 all suites or none can be chosen; {', '.join(sorted(_SUITES_1_3 - new))} "
            "is missing"
        )
    if old:
        context.set_ciphers(":".join(old))
    left = [each for each in versions if (new if each == TLS_1_3 else old)]
    if not left:
        raise ConfigError(f"{CIPHER_SUITES}: no version of ssl.enabled.protocols has any of them")
    return left


def _load_key(context: ssl.SSLContext, store: KeyStore) -> None:
    certificates = "".join(pem_of("CERTIFICATE", each) for each in store.chain)
    password = "" if store.password is None else store.password.reveal()
    with _as_file(store.key.reveal() + certificates) as path:
        try:
            # Never without a password: OpenSSL would ask for it at the terminal.
            context.load_cert_chain(path, password=lambda: password)
        except ssl.SSLError as error:
            why = "its password is wrong" if ENCRYPTED in store.key.reveal() else _reason(error)
            if "MISMATCH" in (error.reason or ""):
                why = "it does not belong to the first certificate"
            raise ConfigError(f"the private key cannot be used: {why}") from None


@contextmanager
def _as_file(text: str) -> Generator[str]:
    """OpenSSL wants a path, here one that exists in memory and nowhere else."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _reason(error: ssl.SSLError) -> str:
    # It has none for some that come from below.
    return (error.reason or "").lower().replace("_", " ") or "OpenSSL does not read it"
