"""SCRAM credentials in a metadata store, and what a request of an administrator changes of them (§80)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.encoding import DECOY_SECRET, ENTRIES_PER_SLICE, decoy_secret_value
from ottla.cluster.image import NO_LEADER, MetadataImage, ScramUser
from ottla.cluster.scram_users import (
    ALTERATIONS_MAX,
    SALT_BYTES_MAX,
    USER_BYTES_MAX,
    ScramAlteration,
    ScramDeletion,
    ScramUpsertion,
    alter_scram_users,
    check_alterations,
    check_count,
    derived_put,
    scram_credential_of,
    scram_credentials_in_slices,
    scram_key,
    scram_user,
    scram_value,
)
from ottla.cluster.store import Changes, Delete, Entry, Expect, Put, Snapshot, StoreError, Transaction
from ottla.cluster.updates import applied
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.security.authentication import ANONYMOUS
from ottla.security.scram_credential import ScramCredential, ScramHash, credential_of

EMPTY = MetadataImage("c", NO_LEADER)
SHA_256, SHA_512 = ScramHash.SHA_256, ScramHash.SHA_512
ALICE = SHA_256, "alice"
SALT, SALTED = b"salt of 16 bytes", bytes(range(32))
CREDENTIAL = credential_of(SHA_256, SALT, SALTED, 4096)
SECRET_TEXTS = ("salt", SALT.hex(), CREDENTIAL.stored_key.hex(), SALTED.hex())
# No surrogates: names come as UTF-8.
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def upsertion(user: str = "alice", mechanism: int = 1, **fields: Any) -> ScramUpsertion:
    wanted = ScramUpsertion(user, mechanism, 4096, SALT, SALTED if mechanism == SHA_256 else SALTED * 2)
    return wanted._replace(**fields)


def entry(owner: ScramUser = ALICE, credential: ScramCredential = CREDENTIAL, revision: int = 3) -> Entry:
    return Entry(scram_key(owner), scram_value(credential), revision)


def image_with(*owners: ScramUser) -> MetadataImage:
    return applied(EMPTY, Changes(3, tuple(entry(owner, _of(owner[0])) for owner in owners), ())).image


def _of(scram: ScramHash) -> ScramCredential:
    return credential_of(scram, SALT, bytes(scram.size_bytes), 4096)


def codes(image: MetadataImage, *alterations: ScramAlteration) -> dict[str, ErrorCode]:
    return {user: error.code for user, error in check_alterations(image, alterations).items()}


def planned(image: MetadataImage, *alterations: ScramAlteration) -> Transaction:
    upsertions = [each for each in alterations if isinstance(each, ScramUpsertion)]
    puts = {each: put for each in upsertions if (put := derived_put(each)) is not None}
    return alter_scram_users(image, alterations, check_alterations(image, alterations), puts)


# In the store.


@given(st.sampled_from(ScramHash), NAMES)
def test_any_name_is_one_part_of_a_key(scram: ScramHash, user: str) -> None:
    key = scram_key((scram, user))

    assert scram_user(key) == (scram, user)
    assert key.count("/") == 2
    assert key.isascii()
    assert key.isprintable()


@given(st.lists(NAMES, unique=True, max_size=6))
def test_names_that_begin_alike_are_different_users(users: list[str]) -> None:
    stored = [entry((SHA_256, user)) for user in users]

    assert set(applied(EMPTY, Snapshot(stored, 3)).image.scram_credentials) == {(SHA_256, user) for user in users}


def test_a_credential_is_read_back_as_it_was_written() -> None:
    assert scram_credential_of(entry(revision=7)) == (ALICE, CREDENTIAL)
    assert scram_credential_of(entry(revision=7))[1].revision == 7
    assert entry().key == "scram/SCRAM-SHA-256/alice"
    assert set(json.loads(entry().value)) == {"salt", "stored_key", "server_key", "iterations"}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"salt":1}',
        scram_value(CREDENTIAL).replace(b"4096", b"4095"),
        scram_value(CREDENTIAL).replace(b"4096", b"true"),
        scram_value(CREDENTIAL).replace(b"4096", b"4096.0"),
        scram_value(_of(SHA_512)),
        scram_value(ScramCredential(b"", CREDENTIAL.stored_key, CREDENTIAL.server_key, 4096)),
        scram_value(CREDENTIAL).replace(b"=", b"*"),
    ],
)
def test_a_damaged_credential_is_refused_and_not_shown(value: bytes) -> None:
    with pytest.raises(StoreError, match="scram/SCRAM-SHA-256/alice is damaged") as raised:
        applied(EMPTY, Changes(1, (Entry(scram_key(ALICE), value, 1),), ()))

    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize("name", ["SCRAM-SHA-1/alice", "SCRAM-SHA-256/", "SCRAM-SHA-256/a/b", "SCRAM-SHA-256/%ff", "x"])
def test_a_damaged_key_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match="is damaged"):
        applied(EMPTY, Changes(1, (Entry(f"scram/{name}", scram_value(CREDENTIAL), 1),), ()))


@pytest.mark.parametrize("value", [b"", b"{}", b'{"secret":"00"}', b'{"secret":5}'])
def test_a_damaged_decoy_secret_is_refused_and_not_shown(value: bytes) -> None:
    with pytest.raises(StoreError, match="secrets/decoy is damaged"):
        applied(EMPTY, Changes(1, (Entry(DECOY_SECRET, value, 1),), ()))


def test_no_text_shows_a_secret() -> None:
    hidden = [
        entry(),
        Put(scram_key(ALICE), scram_value(CREDENTIAL)),
        Put(DECOY_SECRET, decoy_secret_value(SALTED)),
        image_with(ALICE),
        upsertion(),
        Changes(1, (entry(),), ()),
    ]
    for text in map(repr, hidden):
        assert "[hidden]" in text
        assert not [secret for secret in SECRET_TEXTS if secret in text]
    assert repr(Put("topics/t", b"value")) == "Put(key='topics/t', value=b'value', lease_id=0)"


# In the image.


def test_changes_are_taken_over_and_a_snapshot_replaces_all() -> None:
    secret = Entry(DECOY_SECRET, decoy_secret_value(SALTED), 4)
    two = applied(image_with(ALICE, (SHA_512, "bob")), Changes(4, (secret,), ())).image
    one = applied(two, Changes(5, (), (scram_key(ALICE),))).image
    other = applied(two, Snapshot([entry((SHA_256, "carol"))], 6)).image

    assert (set(two.scram_credentials), two.decoy_secret) == ({ALICE, (SHA_512, "bob")}, SALTED)
    assert set(one.scram_credentials) == {(SHA_512, "bob")}
    assert (set(other.scram_credentials), other.decoy_secret) == ({(SHA_256, "carol")}, b"")
    assert applied(one, Changes(7, (), (DECOY_SECRET,))).image.decoy_secret == b""


def test_credentials_are_parsed_a_few_at_a_time() -> None:
    stored = [entry((SHA_256, f"u{number:03}")) for number in range(ENTRIES_PER_SLICE + 1)]

    assert [len(some) for some in scram_credentials_in_slices(stored)] == [ENTRIES_PER_SLICE, 1]


# Alterations.


def test_an_upsertion_is_written_whatever_was_there() -> None:
    assert planned(image_with(ALICE), upsertion()) == planned(EMPTY, upsertion())
    assert planned(EMPTY, upsertion()) == Transaction((), (Put(scram_key(ALICE), scram_value(CREDENTIAL)),))


def test_a_deletion_expects_the_credential_that_it_saw() -> None:
    expected = Transaction((Expect(scram_key(ALICE), 3),), (Delete(scram_key(ALICE)),))

    assert planned(image_with(ALICE), ScramDeletion("alice", 1)) == expected


def test_both_mechanisms_of_a_user_are_altered_at_once() -> None:
    image = image_with(ALICE)
    transaction = planned(image, ScramDeletion("alice", 1), upsertion(mechanism=2))

    assert [change.key for change in transaction.changes] == ["scram/SCRAM-SHA-256/alice", "scram/SCRAM-SHA-512/alice"]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("", 0), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramDeletion("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramDeletion("alice", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramDeletion("alice", 2), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramDeletion("Alice", 1), ErrorCode.RESOURCE_NOT_FOUND),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=bytes(7)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=bytes(SALT_BYTES_MAX + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=bytes(31)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=2, salted_password=bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(ANONYMOUS.name), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ü" * (USER_BYTES_MAX // 2 + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_is_not_acceptable_is_refused(wanted: ScramAlteration, code: ErrorCode) -> None:
    image = image_with(ALICE)

    assert codes(image, wanted) == {wanted.user: code}
    assert planned(image, wanted).changes == ()


@pytest.mark.parametrize(
    "wanted",
    [
        upsertion(iterations=16384),
        upsertion(salt=bytes(8)),
        upsertion(salt=bytes(SALT_BYTES_MAX)),
        upsertion("ü" * (USER_BYTES_MAX // 2)),
        upsertion("../topics/t\0\n"),
    ],
)
def test_what_is_on_the_bound_is_accepted(wanted: ScramUpsertion) -> None:
    assert codes(EMPTY, wanted) == {}
    assert len(planned(EMPTY, wanted).changes) == 1


def test_user_and_mechanism_named_twice_refuse_the_user_only() -> None:
    image = image_with(ALICE)
    alterations = (ScramDeletion("alice", 1), upsertion("bob"), upsertion("alice"), upsertion("alice", 2))

    assert codes(image, *alterations) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert [change.key for change in planned(image, *alterations).changes] == ["scram/SCRAM-SHA-256/bob"]


def test_a_user_is_altered_as_a_whole_or_not() -> None:
    alterations = (upsertion(), upsertion(mechanism=2, iterations=1), upsertion("bob"))

    assert codes(EMPTY, *alterations) == {"alice": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert [change.key for change in planned(EMPTY, *alterations).changes] == ["scram/SCRAM-SHA-256/bob"]


def test_too_many_alterations_are_refused() -> None:
    check_count([upsertion()] * ALTERATIONS_MAX)
    with pytest.raises(KafkaError) as raised:
        check_count([upsertion()] * (ALTERATIONS_MAX + 1))

    assert raised.value.code is ErrorCode.POLICY_VIOLATION
