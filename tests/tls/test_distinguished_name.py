"""The subject of a certificate, letter by letter as Java writes it; and when one ends."""

import base64
import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.distinguished_name import alternative_names_of, end_of, subject_of
from tests.java_tools import program
from tests.tls.certificates import Authority

CA = Authority()
KINDS = [
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS, NameOID.DOMAIN_COMPONENT, NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS, NameOID.TITLE, NameOID.GIVEN_NAME, NameOID.SERIAL_NUMBER, NameOID.DN_QUALIFIER,
    x509.ObjectIdentifier("1.3.6.1.4.1.99999.1.128.16384"),
]  # fmt: skip


def attribute(kind: x509.ObjectIdentifier, value: str) -> NameAttribute:
    return NameAttribute(kind, value, _validate=False)


def subject(*parts: NameAttribute | RelativeDistinguishedName) -> str:
    return subject_of(certificate(*parts))


def certificate(*parts: NameAttribute | RelativeDistinguishedName) -> bytes:
    rdns = [
        each if isinstance(each, RelativeDistinguishedName) else RelativeDistinguishedName([each]) for each in parts
    ]
    return CA.issue(Name(rdns), hosts=()).der


CORPUS: list[tuple[list[NameAttribute | RelativeDistinguishedName], str]] = [
    ([attribute(NameOID.COUNTRY_NAME, "US"), attribute(NameOID.ORGANIZATION_NAME, "Org"),
      attribute(NameOID.COMMON_NAME, "Duke")], "CN=Duke,O=Org,C=US"),
    ([attribute(NameOID.COMMON_NAME, 'a,b+c<d>e#f;g"h\\i=j')], r"CN=a\,b\+c\<d\>e\#f\;g\"h\\i\=j"),
    ([attribute(NameOID.COMMON_NAME, "  two  each  ")], r"CN=\ \ two  each\ \ "),
    ([attribute(NameOID.COMMON_NAME, "   ")], r"CN=\ \ \ "),
    ([attribute(NameOID.COMMON_NAME, "Jürgen 東京")], "CN=Jürgen 東京"),
    ([attribute(NameOID.COMMON_NAME, "a\0b")], r"CN=a\00b"),
    ([RelativeDistinguishedName([attribute(NameOID.COMMON_NAME, "x"), attribute(NameOID.USER_ID, "y")])], "CN=x+UID=y"),
    ([attribute(NameOID.COMMON_NAME, "x"), NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c")],
     "1.2.840.113549.1.9.1=#16056140622e63,CN=x"),
    ([attribute(NameOID.STREET_ADDRESS, "1 Way"), attribute(NameOID.STATE_OR_PROVINCE_NAME, "NY"),
      attribute(NameOID.LOCALITY_NAME, "City"), attribute(NameOID.DOMAIN_COMPONENT, "example")],
     "DC=example,L=City,ST=NY,STREET=1 Way"),
    ([], ""),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "text"), CORPUS)
def test_subject_of_a_certificate(parts: list[NameAttribute], text: str) -> None:
    assert subject(*parts) == text


def test_alternative_names() -> None:
    both = alternative_names_of(CA.issue("x", hosts=("a.example", "127.0.0.1")).der)
    assert both == {b"\x82\x09a.example", b"\x87\x04\x7f\0\0\1"}
    assert alternative_names_of(CA.issue("x", hosts=()).der) == frozenset()


@given(st.binary(max_size=200))
def test_no_certificate(data: bytes) -> None:
    for read in (subject_of, alternative_names_of):
        with pytest.raises(ValueError):
            read(data)


WHOLE = certificate(*CORPUS[0][0])


@given(st.data())
def test_certificate_that_is_cut_or_changed(data: st.DataObject) -> None:
    der = bytearray(WHOLE)
    der[data.draw(st.integers(0, len(der) - 1))] ^= data.draw(st.integers(1, 255))
    for read in (subject_of, alternative_names_of):
        with contextlib.suppress(ValueError):
            read(bytes(der[: data.draw(st.integers(0, len(der)))]))


TYPES = [_ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.IA5String]
PRINTABLE = "abcXYZ 019'()+,-./:=?"
TEXTS = st.text(st.sampled_from(PRINTABLE), min_size=1) | st.text(
    st.characters(codec="ascii") | st.sampled_from("ü東,+=\\"), min_size=1
)


@st.composite
def _attributes(draw: st.DrawFn) -> NameAttribute:
    kind, text = draw(st.sampled_from(KINDS)), draw(TEXTS)
    usable = TYPES if set(text) <= set(PRINTABLE) else TYPES[:1]
    return NameAttribute(kind, text, draw(st.sampled_from(usable)), _validate=False)


def _java(certificates: list[bytes]) -> list[str]:
    if shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    names = program(Path(__file__).with_name("Names.java"), "")
    lines = "".join(f"{base64.b64encode(each).decode()}\n" for each in certificates)
    done = subprocess.run(names, input=lines, capture_output=True, text=True, check=True)
    return [base64.b64decode(each).decode() for each in done.stdout.split("\n")[: len(certificates)]]


@pytest.mark.java
def test_subjects_as_java_writes_them() -> None:
    found: list[bytes] = [certificate(*parts) for parts, _ in CORPUS]

    @settings(max_examples=200, database=None, derandomize=True)
    @given(st.lists(_attributes() | st.lists(_attributes(), min_size=1, max_size=2, unique_by=lambda each: each.oid)
                    .map(RelativeDistinguishedName), max_size=4))  # fmt: skip
    def collect(parts: list[NameAttribute | RelativeDistinguishedName]) -> None:
        found.append(certificate(*parts))

    collect()
    assert len(found) > 100
    for der, text in zip(found, _java(found), strict=True):
        assert subject_of(der) == text, der.hex()


@pytest.mark.parametrize("days", [-300, 0, 365, 40_000])
def test_end_of_a_certificate(days: int) -> None:
    """From 2050 on it is written with the whole year."""
    issued = CA.issue("broker", days=days)
    assert end_of(issued.der) == issued.certificate.not_valid_after_utc


@pytest.mark.parametrize("cut", [0, 1, 40, 90])
def test_no_end_of_what_is_no_certificate(cut: int) -> None:
    with pytest.raises(ValueError, match=r"certificate|ASN\.1"):
        end_of(CA.issue("broker").der[:cut])
