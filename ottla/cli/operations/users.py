"""Users who log in by SCRAM, at any broker that speaks Kafka's protocol.

A user has a credential for each mechanism. Each is altered by a request of its own, for Apache Kafka refuses one that
names a user twice.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.cli.client import Client
from ottla.cli.failures import check
from ottla.cluster.scram_users import ScramUpsertion
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.security.client import Secret
from ottla.security.scram_credential import SALT_BYTES, ScramHash, salted_password


@dataclass(frozen=True, slots=True)
class UserMechanism:
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class User:
    name: str
    mechanisms: tuple[UserMechanism, ...]


def salted_upsertion(name: str, scram: ScramHash, iterations: int, password: Secret) -> ScramUpsertion:
    """What a broker gets in place of a password; the salt is a new one."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(scram, password.reveal().encode(), salt, iterations)
    return ScramUpsertion(name, int(scram), iterations, salt, salted)


async def list_users(client: Client, names: Sequence[str] = ()) -> list[User]:
    """Those that are named, or all that have a credential; in order of their names. Raises Refused for one without."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
    response = await client.ask_any(request, DescribeUserScramCredentialsResponse)
    check("cannot list users", response.error_code, response.error_message)
    for result in response.results:
        check(f"cannot describe user {result.user}", result.error_code, result.error_message)
    return [
        User(
            result.user,
            tuple(
                UserMechanism(_mechanism_name(info.mechanism), info.iterations)
                for info in sorted(result.credential_infos, key=lambda info: info.mechanism)
            ),
        )
        for result in sorted(response.results, key=lambda result: result.user)
    ]


async def upsert(client: Client, wanted: ScramUpsertion) -> None:
    """Raises Refused."""
    upsertion = ScramCredentialUpsertion(
        name=wanted.user,
        mechanism=wanted.mechanism,
        iterations=wanted.iterations,
        salt=wanted.salt,
        salted_password=wanted.salted_password,
    )
    await _alter(client, f"cannot create user {wanted.user}", AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete(client: Client, name: str, scram: ScramHash) -> None:
    """Raises Refused."""
    deletion = ScramCredentialDeletion(name=name, mechanism=int(scram))
    await _alter(client, f"cannot delete user {name}", AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(client: Client, what: str, request: AlterUserScramCredentialsRequest) -> None:
    async def attempt() -> None:
        response = await client.ask_controller(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            check(what, result.error_code, result.error_message)

    await client.retrying(attempt)


def _mechanism_name(number: int) -> str:
    return ScramHash(number).mechanism if number in {*ScramHash} else f"mechanism {number}"
