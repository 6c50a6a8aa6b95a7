"""What is read in certificates: the subject as Java writes it, which users' ACLs contain, the alternative names, and
when one ends.

The text is that of `X500Principal.getName(RFC2253)`: the most specific part first, without blanks; nine attributes by
their keywords, all others as the number of their type and the DER bytes of their value. ASN.1 is read as far as that
takes, of certificates that OpenSSL has read before. Sources: RFC 2253, RFC 5280, the JDK's `AVA.toRFC2253String`.
"""

import datetime
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"
# UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString: what Java takes for text.
_TEXT_TAGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_EXPLICIT_VERSION, _EXTENSIONS = 0xA0, 0xA3
_SUBJECT_ALT_NAME = bytes((0x55, 0x1D, 0x11))
_GENERALIZED_TIME = 0x18


class _Element(NamedTuple):
    tag: int
    whole: bytes
    """With the tag and the length."""
    content: bytes


def subject_of(certificate: bytes) -> str:
    """Of a certificate in DER. Raises ValueError for what is none."""
    try:
        parts = [_elements(part.content) for part in _elements(_fields(certificate)[4].content)]
        return ",".join("+".join(list(map(_attribute, part))) for part in reversed(parts))
    except IndexError:
        raise ValueError("no certificate") from None


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """The subject's alternative names, each as its DER bytes. Raises ValueError."""
    try:
        extensions = [each for each in _fields(certificate)[5:] if each.tag == _EXTENSIONS]
        for extension in _elements(_elements(extensions[0].content)[0].content) if extensions else ():
            parts = _elements(extension.content)
            if parts[0].content == _SUBJECT_ALT_NAME:
                return frozenset(each.whole for each in _elements(_elements(parts[-1].content)[0].content))
    except IndexError:
        raise ValueError("no certificate") from None
    return frozenset()


def end_of(certificate: bytes) -> datetime.datetime:
    """The last second in which it is valid (RFC 5280). Raises ValueError."""
    try:
        end = _elements(_fields(certificate)[3].content)[1]
    except IndexError:
        raise ValueError("no certificate") from None
    text = end.content.decode("ascii")
    if end.tag != _GENERALIZED_TIME:
        # Two digits of the year: those of 1950 to 2049.
        text = f"{'20' if text < '5' else '19'}{text}"
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)


def _fields(certificate: bytes) -> list[_Element]:
    """Of the part that is signed, without the version: serial, algorithm, issuer, validity, subject, key, …"""
    signed = _elements(_elements(certificate)[0].content)[0]
    fields = [each for each in _elements(signed.content) if each.tag != _EXPLICIT_VERSION]
    if len(fields) < 6:
        raise ValueError("no certificate")
    return fields


def _elements(data: bytes) -> list[_Element]:
    found: list[_Element] = []
    position = 0
    while position < len(data):
        start = position
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise ValueError("an ASN.1 element is longer than what is there")
        found.append(_Element(tag, data[start : position + length], data[position : position + length]))
        position += length
    return found


def _attribute(element: _Element) -> str:
    kind, value = _elements(element.content)[:2]
    number = _number(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _number(content: bytes) -> str:
    """The dotted form of an object identifier."""
    numbers, number = list[int](), 0
    for each in content:
        number = number << 7 | each & 0x7F
        if not each & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    lead, trail = len(text) - len(text.lstrip(_BLANKS)), len(text.rstrip(_BLANKS))
    return "".join(
        "\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED or not lead <= position < trail else each
        for position, each in enumerate(text)
    )
