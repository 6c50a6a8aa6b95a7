"""Authorities and certificates for tests, made in milliseconds: keys are of P-256 where nothing else is asked for."""

import datetime
import ipaddress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
PASSWORD = "the password of the key"
SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def name_of(common_name: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ottla"), x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    )


@dataclass(frozen=True)
class Certificate:
    key: CertificateIssuerPrivateKeyTypes
    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...] = ()
    """Between it and the root."""

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def chain_pem(self) -> str:
        chain = (self.certificate, *self.authorities)
        return "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in chain)

    @cached_property
    def key_pem(self) -> str:
        return self._key_pem(serialization.NoEncryption())

    @cached_property
    def encrypted_key_pem(self) -> str:
        return self._key_pem(serialization.BestAvailableEncryption(PASSWORD.encode()))

    def _key_pem(self, encryption: serialization.KeySerializationEncryption) -> str:
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, encryption).decode()

    def write(self, path: Path) -> Path:
        """Key and chain in one file, as `ssl.keystore.location` has them."""
        path.write_text(self.key_pem + self.chain_pem)
        path.chmod(0o600)
        return path


class Authority:
    """A root, or one below another."""

    def __init__(self, name: str = "Test CA", issuer: "Authority | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = name_of(name)
        self._issuer = issuer
        signer = issuer or self
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self.name, signer.name, self.key).add_extension(constraints, critical=True)
        builder = _with_identifiers(builder.add_extension(SIGNS, critical=True), self.key, signer.key)
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def issue(
        self,
        subject: str | x509.Name = "client",
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        days: int = 30,
        by_rsa: bool = False,
    ) -> Certificate:
        """`days` below 0: it has expired so long ago."""
        key: CertificateIssuerPrivateKeyTypes
        key = rsa.generate_private_key(65537, 2048) if by_rsa else ec.generate_private_key(ec.SECP256R1())
        name = name_of(subject) if isinstance(subject, str) else subject
        builder = _builder(name, self.name, key, days)
        if hosts:
            names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
            builder = _with_identifiers(builder.add_extension(names, critical=False), key, self.key)
        above = () if self._issuer is None else (self.certificate,)
        return Certificate(key, builder.sign(self.key, hashes.SHA256()), above)


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _with_identifiers(
    builder: x509.CertificateBuilder, key: CertificateIssuerPrivateKeyTypes, issuer: CertificateIssuerPrivateKeyTypes
) -> x509.CertificateBuilder:
    """Of both keys: since Python 3.13 clients ask for them. Java takes a certificate without a subject only where it
    has no extension."""
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())
    subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(authority, critical=False).add_extension(subject, critical=False)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: CertificateIssuerPrivateKeyTypes, days: int = 30
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 400 * DAY)
        .not_valid_after(NOW + days * DAY)
    )
