"""Who sends a request: a type and a name, written `User:alice`."""

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """Equal to another if both parts are, upper and lower case told apart."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Who has not said, or could not prove, who it is. An ordinary name for ACLs, quotas and super users."""


def parse_principal(text: str) -> Principal:
    """Of `Type:Name`; the name may have colons. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is no principal: one is written Type:Name, as in User:alice")
    return Principal(kind, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """Of `super.users`: separated by semicolons, since the names of certificates have commas. Raises ValueError."""
    return frozenset(parse_principal(entry.strip()) for entry in text.split(";") if entry.strip())
