"""PEM as Kafka takes it: one private key and certificates in any order, text between them, blanks instead of line ends.

In properties a PEM text often stands on one line. The blocks are given in the form that OpenSSL reads.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from ottla.security.client import Secret

ENCRYPTED: Final = "ENCRYPTED PRIVATE KEY"
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_KEYS = ("PRIVATE KEY", ENCRYPTED, "RSA PRIVATE KEY", "EC PRIVATE KEY")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADER = re.compile(r"^[^\r\n:]*:[^\r\n]*$", re.MULTILINE)
_JKS, _PKCS12 = b"\xfe\xed\xfe\xed", b"\x30"
_LINE = 64

CONVERSION: Final = (
    "`keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12` and `openssl pkcs12 "
    "-in STORE.p12 -out STORE.pem` make one of it"
)


class PemError(ValueError):
    """A sentence that has nothing of the text."""


class PemTexts(NamedTuple):
    keys: tuple[Secret, ...]
    certificates: tuple[bytes, ...]
    """In DER, in order."""

    @property
    def has_encrypted_key(self) -> bool:
        return any(ENCRYPTED in each.reveal() for each in self.keys)


def parse_pem(data: bytes) -> PemTexts:
    """Raises PemError."""
    if data.startswith((_JKS, _PKCS12)):
        raise PemError(f"it is no PEM text, but looks like a JKS or PKCS12 store: {CONVERSION}")
    keys: list[Secret] = []
    certificates: list[bytes] = []
    for kind, body in _BLOCK.findall(data.decode("latin-1")):
        if kind not in _CERTIFICATES and kind not in _KEYS:
            continue
        if "Proc-Type" in body:
            raise PemError("its key is encrypted in an old way; `openssl pkcs8 -topk8 -in KEY -out NEW` mends that")
        try:
            # Its own decoder: what is wrong with a key must not stand in a message.
            der = base64.b64decode("".join(_HEADER.sub("", body).split()), validate=True)
        except binascii.Error:
            raise PemError(f"a block {kind} in it is not Base64") from None
        if kind in _KEYS:
            keys.append(Secret(pem_of(kind, der)))
        else:
            certificates.append(der)
    return PemTexts(tuple(keys), tuple(certificates))


def pem_of(kind: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[start : start + _LINE] for start in range(0, len(text), _LINE))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"
