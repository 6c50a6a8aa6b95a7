"""AlterUserScramCredentials and DescribeUserScramCredentials of real brokers (§80)."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.broker_data import METADATA_FILE
from ottla.broker.local_cluster import LocalCluster
from ottla.cluster.scram_users import ALTERATIONS_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.security.scram_credential import ScramHash, credential_of, salted_password
from tests.broker.asking import running
from tests.broker.clusters import ask, running_cluster, until

SALT = b"salt of 16 bytes"
USERS = ["alice", "bob, the builder", "größe/../%2F\n", "="]


def upsertion(user: str, scram: int = 1, **fields: Any) -> Any:
    known = ScramHash.SHA_512 if scram == ScramHash.SHA_512 else ScramHash.SHA_256
    salted = salted_password(known, b"secret", SALT, 4096)
    given = {"name": user, "mechanism": scram, "iterations": 4096, "salt": SALT, "salted_password": salted}
    return ScramCredentialUpsertion(**given | fields)


def deletion(user: str, scram: int = 1) -> Any:
    return ScramCredentialDeletion(name=user, mechanism=scram)


def altering(*upsertions: Any, deletions: tuple[Any, ...] = ()) -> Any:
    return AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))


def describing(*users: str) -> Any:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])


def codes(response: Any) -> dict[str, int]:
    assert len({each.user for each in response.results}) == len(response.results)
    return {each.user: each.error_code for each in response.results}


def described(response: Any) -> dict[str, Any]:
    """By user: mechanisms and iterations, or the code of the error."""
    assert (response.error_code, response.error_message) == (0, "")
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] or each.error_code
        for each in response.results
    }


def knows(broker: Broker, user: str) -> bool:
    return (ScramHash.SHA_256, user) in broker.image.scram_credentials


async def test_users_are_altered_and_described(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        wanted = [upsertion(user) for user in USERS] + [upsertion("alice", 2, iterations=8192)]
        made = await broker.ask(altering(*wanted), 0)
        everybody = await broker.ask(DescribeUserScramCredentialsRequest(users=None), 0)
        of_none = await broker.ask(describing(), 0)
        some = await broker.ask(describing("alice", "x", "=", "="), 0)
        await broker.ask(altering(deletions=(deletion("alice"),)), 0)
        left = await broker.ask(describing("alice"), 0)

    assert codes(made) == dict.fromkeys(USERS, 0)
    assert described(everybody) == {key: [(1, 4096)] for key in USERS} | {"alice": [(1, 4096), (2, 8192)]}
    assert everybody == of_none
    assert described(some) == {
        "alice": [(1, 4096), (2, 8192)],
        "x": ErrorCode.RESOURCE_NOT_FOUND,
        "=": ErrorCode.DUPLICATE_RESOURCE,
    }
    assert described(left) == {"alice": [(2, 8192)]}


async def test_the_credential_is_the_one_of_the_password(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.ask(altering(upsertion("alice")), 0)
        kept = broker.broker.image.scram_credentials[ScramHash.SHA_256, "alice"]

    salted = salted_password(ScramHash.SHA_256, b"secret", SALT, 4096)
    assert kept == credential_of(ScramHash.SHA_256, SALT, salted, 4096)


async def test_refused_users_are_named_and_the_others_altered(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.ask(
            altering(
                upsertion("alice"),
                upsertion("few", iterations=1),
                upsertion("odd", 9),
                upsertion("twice"),
                upsertion("twice"),
                deletions=(deletion("missing"), deletion("missing")),
            ),
            0,
        )
        left = await broker.ask(describing(), 0)

    assert codes(response) == {
        "missing": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "alice": 0,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
    assert described(left) == {"alice": [(1, 4096)]}


async def test_a_request_of_too_many_is_refused_for_each(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        users = [f"u{number}" for number in range(ALTERATIONS_MAX + 1)]
        response = await broker.ask(altering(*map(upsertion, users)), 0)
        fewer = await broker.ask(altering(*map(upsertion, users[1:])), 0)

        assert codes(response) == dict.fromkeys(users, ErrorCode.POLICY_VIOLATION)
        assert codes(fewer) == dict.fromkeys(users[1:], 0)
        assert len(described(await broker.ask(describing(), 0))) == ALTERATIONS_MAX


async def test_users_and_decoy_secret_outlast_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.ask(altering(*map(upsertion, USERS)), 0)
        before = broker.broker.image
    async with running(tmp_path) as broker:
        after = broker.broker.image

    assert dict(after.scram_credentials) == dict(before.scram_credentials)
    assert len(after.scram_credentials) == len(USERS)
    assert after.decoy_secret == before.decoy_secret
    assert len(after.decoy_secret) == 32


async def test_only_the_owner_reads_the_data(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        async with running(tmp_path / "data"):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").rglob("*")}
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert modes[METADATA_FILE] == modes["meta.properties"] == 0o600
    assert not {name for name, mode in modes.items() if mode & 0o077}


async def test_a_metadata_file_that_others_could_read_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    (tmp_path / METADATA_FILE).chmod(0o644)
    async with running(tmp_path):
        assert stat.S_IMODE((tmp_path / METADATA_FILE).stat().st_mode) == 0o600


# Of a cluster.


async def seen_by_all(cluster: LocalCluster, user: str, *, is_there: bool = True) -> None:
    await until(lambda: all(knows(each, user) is is_there for each in cluster.brokers.values()))


async def test_a_change_at_one_broker_is_seen_by_all(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        first, second, third = cluster.brokers.values()
        assert codes(await ask(first, altering(upsertion("alice")))) == {"alice": 0}
        assert knows(first, "alice")
        await seen_by_all(cluster, "alice")
        assert described(await ask(third, describing("alice"))) == {"alice": [(1, 4096)]}

        # A broker that has not heard of the user asks the store before it says that there is none.
        assert codes(await ask(second, altering(deletions=(deletion("alice"),)))) == {"alice": 0}
        again = await ask(third, altering(deletions=(deletion("alice"),)))
        await seen_by_all(cluster, "alice", is_there=False)
        secrets = {each.image.decoy_secret for each in cluster.brokers.values()}

    assert codes(again) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert len(secrets) == 1


async def test_one_of_many_deletions_at_once_finds_the_user(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        brokers = list(cluster.brokers.values())
        await ask(brokers[0], altering(upsertion("alice")))
        answers = await asyncio.gather(*(ask(each, altering(deletions=(deletion("alice"),))) for each in brokers * 2))

    found = sorted(codes(each)["alice"] for each in answers)
    assert found == [0] + [ErrorCode.RESOURCE_NOT_FOUND] * 5


@pytest.mark.parametrize("restarted", [0, 1])
async def test_a_killed_broker_comes_back_with_all_users(tmp_path: Path, restarted: int) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        await ask(cluster.brokers[0], altering(upsertion("before")))
        await cluster.kill_broker(restarted)
        other = cluster.brokers[2]
        assert codes(await ask(other, altering(upsertion("during"), deletions=(deletion("before"),)))) == {
            "during": 0,
            "before": 0,
        }
        await cluster.start_broker(restarted)

        image = cluster.brokers[restarted].image
        assert [user for _, user in image.scram_credentials] == ["during"]
        assert image.decoy_secret == other.image.decoy_secret
