"""Client quotas as the metadata store keeps them and administrators alter and describe them (§65)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.client_quotas import (
    ALTERATIONS_MAX,
    ANY_NAME,
    DEFAULT_NAME,
    EXACT,
    QuotaAlteration,
    QuotaOp,
    alter_quotas,
    check_alterations,
    entity_filter,
    entity_of,
    names_of,
    quota_entity,
    quota_key,
    quota_value,
    quotas_of,
)
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.store import QUOTAS, Changes, Delete, Entry, Put, Snapshot, StoreError
from ottla.cluster.updates import applied
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError, PolicyViolation
from ottla.security.quotas import CLIENT_KEYS, DEFAULT, EntityQuotas, QuotaEntity

EMPTY = MetadataImage("", NO_LEADER)
names = st.one_of(st.none(), st.just(DEFAULT), st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable()))
entities = st.builds(QuotaEntity, names, names, st.none()).filter(lambda entity: entity != QuotaEntity())
limits = st.dictionaries(st.sampled_from(CLIENT_KEYS), st.integers(1, 10**6).map(float), min_size=1)
ALICE = QuotaEntity("alice")


def entry(entity: QuotaEntity, quotas: dict[str, float], revision: int = 1) -> Entry:
    return Entry(quota_key(entity), quota_value(quotas), revision)


def alteration(entity: QuotaEntity = ALICE, *removed: str, **values: float) -> QuotaAlteration:
    ops = [QuotaOp(key, value, False) for key, value in values.items()]
    return QuotaAlteration(tuple(names_of(entity)), (*ops, *(QuotaOp(key, 0.0, True) for key in removed)))


def image_with(*entries: Entry) -> MetadataImage:
    return applied(EMPTY, Snapshot(list(entries), 5)).image


@given(entities, limits)
def test_quotas_come_back_as_they_were(entity: QuotaEntity, quotas: dict[str, float]) -> None:
    assert quotas_of(entry(entity, quotas)) == (entity, quotas)
    assert quota_key(entity).isascii()


@given(st.lists(st.tuples(entities, st.one_of(st.none(), limits)), max_size=30))
def test_the_image_follows_what_the_store_says(changes: list[tuple[QuotaEntity, dict[str, float] | None]]) -> None:
    image, left = EMPTY, dict[QuotaEntity, dict[str, float]]()
    for revision, (entity, quotas) in enumerate(changes, start=1):
        puts = () if quotas is None else (entry(entity, quotas, revision),)
        deletes = (quota_key(entity),) if quotas is None else ()
        image = applied(image, Changes(revision, puts, deletes)).image
        left.pop(entity, None)
        if quotas is not None:
            left[entity] = quotas
    again = applied(EMPTY, Snapshot([entry(*each) for each in left.items()], len(changes) + 1)).image
    assert dict(image.client_quotas) == dict(again.client_quotas) == left
    limited = {key for quotas in left.values() for key in quotas}
    for each in (image, again):
        assert (each.quota_index.limited_keys if each.quota_index is not None else set()) == limited


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user/alice", b"["),
        ("user/alice", b"{}"),
        ("user/alice", b'{"producer_byte_rate": "x"}'),
        ("user/alice", b'{"producer_byte_rate": -1}'),
        ("user/alice", b'{"connection_creation_rate": 5}'),
        ("user", b'{"producer_byte_rate": 1}'),
        ("user/alice/", b'{"producer_byte_rate": 1}'),
        ("client-id/a/user/b", b'{"producer_byte_rate": 1}'),
        ("planet/mars", b'{"producer_byte_rate": 1}'),
        ("user/%FF", b'{"producer_byte_rate": 1}'),
    ],
)
def test_damage_is_found(key: str, value: bytes) -> None:
    with pytest.raises(StoreError, match=QUOTAS):
        quotas_of(Entry(QUOTAS + key, value, 1))


def test_names_are_data() -> None:
    entity = QuotaEntity("a/client-id/b", "%2F")
    assert quota_entity(quota_key(entity)) == entity
    assert quota_key(QuotaEntity(DEFAULT, "app")) == "quotas/user//client-id/app"


@pytest.mark.parametrize(
    ("named", "ops"),
    [
        ([], [("producer_byte_rate", 1.0)]),
        ([("user", "a"), ("user", "b")], [("producer_byte_rate", 1.0)]),
        ([("planet", "mars")], [("producer_byte_rate", 1.0)]),
        ([("user", "")], [("producer_byte_rate", 1.0)]),
        ([("user", "a"), ("ip", "10.0.0.1")], [("producer_byte_rate", 1.0)]),
        ([("ip", "example.org")], [("connection_creation_rate", 1.0)]),
        ([("user", "a")], [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
        ([("user", "a")], [("connection_creation_rate", 1.0)]),
        ([("ip", None)], [("producer_byte_rate", 1.0)]),
        ([("user", "a")], [("producer_byte_rate", 0.0)]),
        ([("user", "a")], [("request_percentage", float("nan"))]),
        ([("user", "a")], [("consumer_byte_rate", 1.5)]),
        ([("ip", None)], [("connection_creation_rate", 2.0**31)]),
        ([("user", "x" * 1025)], [("producer_byte_rate", 1.0)]),
    ],
)
def test_what_makes_no_sense_is_refused(named: Any, ops: Any) -> None:
    wrong = QuotaAlteration(tuple(named), tuple(QuotaOp(key, value, False) for key, value in ops))
    (error,) = check_alterations([wrong])
    assert isinstance(error, InvalidRequest)


def test_an_entity_that_is_altered_twice_is_not_altered() -> None:
    """Also where its parts come in another order. Kafka applies the first."""
    one = alteration(QuotaEntity("a", "b"), producer_byte_rate=5)
    other = QuotaAlteration(one.named[::-1], one.ops)
    fine = alteration(ALICE, producer_byte_rate=5)
    assert [error is None for error in check_alterations([one, fine, other])] == [False, True, False]


def test_so_many_alterations_are_too_many() -> None:
    with pytest.raises(PolicyViolation):
        check_alterations([alteration(QuotaEntity(str(n)), producer_byte_rate=5) for n in range(ALTERATIONS_MAX + 1)])


def test_alterations_are_one_transaction() -> None:
    image = image_with(entry(ALICE, {"producer_byte_rate": 5.0, "request_percentage": 1.0}))
    bob, carol = QuotaEntity("bob"), QuotaEntity("carol")
    wanted = [
        alteration(ALICE, "request_percentage", "consumer_byte_rate", producer_byte_rate=7),
        alteration(bob, producer_byte_rate=1),
        alteration(carol, producer_byte_rate=1),
        alteration(QuotaEntity("dave"), "producer_byte_rate"),
    ]
    transaction = alter_quotas(image, wanted, refused={2})
    assert [(each.key, json.loads(each.value)) for each in transaction.changes if isinstance(each, Put)] == [
        (quota_key(ALICE), {"producer_byte_rate": 7}),
        (quota_key(bob), {"producer_byte_rate": 1}),
    ]
    assert [each.revision for each in transaction.expected] == [1, 0]


def test_an_entity_without_quotas_disappears() -> None:
    image = image_with(entry(ALICE, {"producer_byte_rate": 5.0}))
    removal = alter_quotas(image, [alteration(ALICE, "producer_byte_rate")], ())
    assert removal.changes == (Delete(quota_key(ALICE)),)
    same = alter_quotas(image, [alteration(ALICE, producer_byte_rate=5)], ())
    assert not same.changes


OF_ALL = {
    "alice": ALICE,
    "default user": QuotaEntity(DEFAULT),
    "pair": QuotaEntity("alice", "app"),
    "app": QuotaEntity(None, "app"),
    "ip": QuotaEntity(ip="10.0.0.1"),
}


@pytest.mark.parametrize(
    ("components", "is_strict", "found"),
    [
        ([], False, list(OF_ALL)),
        ([], True, []),
        ([("user", EXACT, "alice")], False, ["alice", "pair"]),
        ([("user", EXACT, "alice")], True, ["alice"]),
        ([("user", DEFAULT_NAME, None)], False, ["default user"]),
        ([("user", ANY_NAME, None)], False, ["alice", "default user", "pair"]),
        ([("user", ANY_NAME, None), ("client-id", ANY_NAME, None)], True, ["pair"]),
        ([("client-id", EXACT, "app")], False, ["pair", "app"]),
        ([("ip", ANY_NAME, None)], True, ["ip"]),
        ([("user", EXACT, "bob")], False, []),
    ],
)
def test_a_filter_finds_its_entities(components: Any, is_strict: bool, found: list[str]) -> None:
    wanted = entity_filter(components, is_strict=is_strict)
    assert [name for name, entity in OF_ALL.items() if wanted.matches(entity)] == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("planet", EXACT, "mars")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT_NAME, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY_NAME, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("ip", EXACT, "10.0.0.1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense(components: Any, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        entity_filter(components, is_strict=False)
    assert caught.value.code is code


def test_revisions_are_not_compared() -> None:
    assert EntityQuotas({"producer_byte_rate": 5.0}, 1) == EntityQuotas({"producer_byte_rate": 5.0}, 2)
    assert entity_of((("user", None), ("client-id", "a"))) == QuotaEntity(DEFAULT, "a")
