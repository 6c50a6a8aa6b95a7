"""A certificate authority for development, and the certificates of brokers that it signs.

cryptography comes with the extra `secure`.
"""

import datetime
import ipaddress
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LASTS = datetime.timedelta(days=3650)
CERTIFICATE_LASTS = datetime.timedelta(days=365)
RENEWED_BEFORE_END = datetime.timedelta(days=30)
# For clients whose clocks are behind.
VALID_SINCE = datetime.timedelta(days=1)


class BrokenCa(ValueError):
    """One sentence without a subject, which is the file."""


class DevelopmentCa:
    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls) -> "DevelopmentCa":
        """With a name that no other has: clients find an authority by it."""
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        name = _name(f"Ottla development CA {serial:x}"[:64])
        builder = _builder(name, name, key.public_key(), CA_LASTS).serial_number(serial)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, key_pem: bytes, certificate_pem: bytes) -> "DevelopmentCa":
        """Raises BrokenCa."""
        try:
            key = load_pem_private_key(key_pem, None)
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        except (ValueError, TypeError):
            raise BrokenCa("is no pair of a private key and a certificate in PEM") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise BrokenCa("has a private key that does not belong to the certificate")
        if certificate.not_valid_after_utc <= _now():
            raise BrokenCa(f"has expired at {certificate.not_valid_after_utc:%Y-%m-%d}")
        return cls(key, certificate)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self._key)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(self, hosts: Iterable[str]) -> bytes:
        """A new key and its certificate, which names `hosts`, in PEM. Raises ValueError for what is no host."""
        key = ec.generate_private_key(ec.SECP256R1())
        lasts = min(CERTIFICATE_LASTS, self._certificate.not_valid_after_utc - _now())
        builder = _builder(_name("Ottla development broker"), self._certificate.subject, key.public_key(), lasts)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
            (authority, False),
            (x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), False),
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        builder = builder.serial_number(x509.random_serial_number())
        return _key_pem(key) + builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def is_good(self, pem: bytes, hosts: Iterable[str]) -> bool:
        """Whether the first certificate in `pem` names all of `hosts` and does not end soon.

        Raises BrokenCa: there is none, or another authority has signed it."""
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            names = _names(certificate)
        except ValueError:
            raise BrokenCa("has no certificate in PEM") from None
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (InvalidSignature, TypeError, ValueError):
            raise BrokenCa("has a certificate that another authority has signed") from None
        lasts = certificate.not_valid_after_utc - _now()
        return lasts > RENEWED_BEFORE_END and all(_alternative_name(host) in names for host in hosts)


def _names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _alternative_name(host: str) -> x509.GeneralName:
    """Raises ValueError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.lower())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: datetime.timedelta
) -> x509.CertificateBuilder:
    now = _now()
    builder = x509.CertificateBuilder(issuer, subject, key).not_valid_before(now - VALID_SINCE)
    return builder.not_valid_after(now + lasts).add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key), critical=False
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
