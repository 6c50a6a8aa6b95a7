"""What one who logs in by SASL needs: a broker that connects to another, and the command line."""

from typing import NamedTuple

from ottla.security.secret import Secret


class LoginCredentials(NamedTuple):
    """`mechanism` as SaslHandshake names it."""

    mechanism: str
    user: str
    password: Secret
