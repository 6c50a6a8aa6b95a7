"""Java's login configuration, as it stands in `sasl.jaas.config`: one module with options, for example

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="her password";

Only read: no module is ever loaded, and the three that Kafka brings are understood by their names.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
LONGEST = 64 * 1024


class LoginModule(Enum):
    """The last part of the name of a Java class."""

    PLAIN = "PlainLoginModule"
    SCRAM = "ScramLoginModule"
    OAUTHBEARER = "OAuthBearerLoginModule"


class JaasError(ValueError):
    """One plain sentence, without a value of the text: values are passwords."""


class JaasEntry(NamedTuple):
    module: LoginModule
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, {sorted(self.options)})"


class _Token(NamedTuple):
    text: str
    is_sign: bool


_SPACE = re.compile(r"(?:\s|//[^\n\r]*|/\*.*?\*/|/[^\n\r]*)+", re.DOTALL)
# Begins with a letter, '_', '$' or anything from U+00A0 on; goes on with digits, '.' and '-' too. Said by what it has
# not, because a range up to the last character takes Python 13 ms to compile.
_WORD = re.compile(r"[^\x00-#%-@\[-^`{-\x9f][^\x00-#%-,/:-@\[-^`{-\x9f]*")
_QUOTED = re.compile(r"\"((?:[^\"\\\n\r]|\\[^\n\r])*)\"|'((?:[^'\\\n\r]|\\[^\n\r])*)'")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CLASS = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)+[A-Za-z_$][A-Za-z0-9_$]*|[A-Za-z_]+LoginModule")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def parse_jaas(text: str) -> JaasEntry:
    """Raises JaasError."""
    if len(text) > LONGEST:
        raise JaasError("the login configuration is too long")
    tokens = list(_tokens(text))
    if len(tokens) < 3:
        raise JaasError("a login configuration is a module, a flag, options, and ';' at the end")
    name, flag, *rest = tokens
    if name.is_sign or flag.is_sign:
        raise JaasError("a login configuration begins with a module and a flag, such as required")
    module = _module(name.text)
    if flag.text.lower() not in FLAGS:
        raise JaasError(f"the flag behind {module.value} is one of {', '.join(sorted(FLAGS))}")
    return JaasEntry(module, _options(rest))


def _module(name: str) -> LoginModule:
    try:
        return LoginModule(name.rpartition(".")[2])
    except ValueError:
        served = ", ".join(module.value for module in LoginModule)
        # What is no name of a class may be a password in its place.
        which = f"the login module {name}" if _CLASS.fullmatch(name) else "what a login configuration begins with here"
        raise JaasError(f"{which} is not supported, but {served} are") from None


def _options(tokens: list[_Token]) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(tokens) and not _is_sign(tokens, position, ";"):
        key = tokens[position]
        if key.is_sign or not _is_sign(tokens, position + 1, "="):
            raise JaasError(f"behind option {len(options) + 1}, '=' is missing")
        if position + 2 >= len(tokens) or tokens[position + 2].is_sign:
            raise JaasError(f"option {len(options) + 1} has no value")
        options[key.text] = tokens[position + 2].text
        position += 3
    if position == len(tokens):
        raise JaasError("';' is missing at the end of the login configuration")
    if position + 1 < len(tokens):
        raise JaasError("the login configuration has more than one entry")
    return options


def _is_sign(tokens: list[_Token], position: int, sign: str) -> bool:
    return position < len(tokens) and tokens[position].is_sign and tokens[position].text == sign


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if space := _SPACE.match(text, position):
            position = space.end()
        elif quoted := _QUOTED.match(text, position):
            position = quoted.end()
            yield _Token(_unescaped(quoted[1] if quoted[1] is not None else quoted[2]), is_sign=False)
        elif word := _WORD.match(text, position):
            position = word.end()
            yield _Token(word[0], is_sign=False)
        elif text[position] in "=;":
            yield _Token(text[position], is_sign=True)
            position += 1
        elif text[position] in "\"'":
            raise JaasError(f"the quote at character {position + 1} of the login configuration is not closed")
        else:
            raise JaasError(
                f"character {position + 1} of the login configuration cannot stand there; values that begin with a "
                "digit or have other signs need quotes"
            )


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[0] in "01234567":
            return chr(int(escaped, 8))
        return _NAMED.get(escaped, escaped)

    return _ESCAPE.sub(character, text)
