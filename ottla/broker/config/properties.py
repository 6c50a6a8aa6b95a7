"""The syntax of Java's .properties files, as far as Kafka's configuration files use it (java.util.Properties.load)."""

import re
from collections.abc import Iterator

from ottla.broker.config.options import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
# Not str.splitlines, which knows more line ends than Java.
_LINE_END = re.compile(r"\r\n|\r|\n")


def parse_properties(text: str) -> dict[str, str]:
    """Names and values in order; the last of two equal names holds, as in Java."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        values[_unescape(name)] = _unescape(value)
    return values


def parse_setting(setting: str) -> tuple[str, str]:
    """`KEY=VALUE` of the command line. The value is taken as it stands; only blanks around both go."""
    name, equals, value = setting.partition("=")
    if not (equals and name.strip()):
        raise ConfigError(f"'{setting}' is not KEY=VALUE")
    return name.strip(), value.strip()


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for physical in _LINE_END.split(text):
        line = physical.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line])
        parts = []
    if parts:
        yield "".join(parts)


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:position], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, "")
        out.append(_unicode(characters) if escaped == "u" else _ESCAPES.get(escaped, escaped))
    return "".join(out)


def _unicode(characters: Iterator[str]) -> str:
    digits = "".join(next(characters, "") for _ in range(4))
    try:
        return chr(int(digits, 16))
    except ValueError:
        raise ConfigError(f"\\u{digits} is not a character: \\u takes four hexadecimal digits") from None
