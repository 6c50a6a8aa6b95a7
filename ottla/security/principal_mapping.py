"""Rules that make the name of a principal from the subject of a certificate: `ssl.principal.mapping.rules` (KIP-371).

A list of rules, of which the first that matches the whole subject holds: `DEFAULT`, the subject itself, or
`RULE:pattern/replacement/` with L or U behind it for small or capital letters. Split, matched and replaced as Kafka's
SslPrincipalMapper and Java's `replaceAll` do; what Java finds out when a client comes is refused with the rules.
"""

import re
from collections.abc import Callable
from typing import Final

DEFAULT: Final = "DEFAULT"
SUBJECT_BYTES_MAX: Final = 4096
"""Of a longer one no rule is tried: what a pattern costs grows with it, for some patterns fast."""

_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.DOTALL)
_PARSER = re.compile(_RULE, re.DOTALL)
_JAVA_GROUP_NAME = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")

Rule = Callable[[str], str | None]
"""The name that a rule gives a subject; None where it does not match."""


class NoMatchingRule(Exception):
    """No rule is for this subject, so its client is refused."""


class PrincipalMapper:
    def __init__(self, rules: str = DEFAULT) -> None:
        """Raises ValueError with a sentence."""
        self._rules: list[Rule] = []
        for text in _split(rules):
            rule = _parse(text)
            if rule is not None:
                self._rules.append(rule)

    def name_of(self, subject: str) -> str:
        """Raises NoMatchingRule."""
        if len(subject.encode()) > SUBJECT_BYTES_MAX:
            raise NoMatchingRule(f"the subject of the certificate has more than {SUBJECT_BYTES_MAX} bytes")
        for rule in self._rules:
            name = rule(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {subject}")


def _split(rules: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(rules.strip())]


def _parse(text: str) -> Rule | None:
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise ValueError(f"'{text}' is neither DEFAULT nor RULE:pattern/replacement/ with L, U or nothing behind it")
    if match[1] is not None:
        return lambda subject: subject
    if match[2] is None:
        return None
    try:
        pattern = re.compile(_JAVA_GROUP_NAME.sub(r"(?P<\1>", match[2]))
    except (re.error, OverflowError) as error:
        raise ValueError(f"'{match[2]}' is no regular expression here: {error}") from None
    return _Replacing(pattern, _Replacement(match[4], pattern), match[6])


class _Replacing:
    def __init__(self, pattern: re.Pattern[str], replacement: "_Replacement", letters: str) -> None:
        self._pattern = pattern
        self._replacement = replacement
        self._letters = letters

    def __call__(self, subject: str) -> str | None:
        if self._pattern.fullmatch(subject) is None:
            return None
        name = self._pattern.sub(self._replacement, subject)
        return name.lower() if self._letters == "L" else name.upper() if self._letters == "U" else name


class _Replacement:
    """Java's: `$1` and `${name}` are groups, a backslash makes the character behind it stand for itself. As in Kafka a
    number beyond the groups is text, after shorter ones have been tried."""

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        self._parts: list[str | int] = []
        position = 0
        while position < len(text):
            character = text[position]
            position += 1
            if character == "$":
                position = self._group(text, position, pattern)
                continue
            if character == "\\":
                if position == len(text):
                    raise ValueError(f"'{text}' ends with a backslash")
                character = text[position]
                position += 1
            self._parts.append(character)

    def _group(self, text: str, start: int, pattern: re.Pattern[str]) -> int:
        """Takes what is behind a dollar sign; gives where the rest begins."""
        name = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(text, start)
        if name is not None:
            if name[1] not in pattern.groupindex:
                raise ValueError(f"'{text}' names a group {name[1]}, which its pattern does not have")
            self._parts.append(pattern.groupindex[name[1]])
            return name.end()
        end = start
        while end < len(text) and text[end] in "0123456789":
            end += 1
        if end == start:
            raise ValueError(f"'{text}' has a $ that no group follows")
        while end > start + 1 and int(text[start:end]) > pattern.groups:
            end -= 1
        number = int(text[start:end])
        if number <= pattern.groups:
            self._parts.append(number)
        elif pattern.groups:
            self._parts.append(f"${text[start:end]}")
        else:
            raise ValueError(f"'{text}' names a group, and its pattern has none")
        return end

    def __call__(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self._parts)
