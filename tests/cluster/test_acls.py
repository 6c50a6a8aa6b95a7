"""ACLs as the metadata store keeps them, and in the image (§61.5)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.acls import ACLS_PER_REQUEST_MAX, acl_key, acl_of, acl_value, create_acls, delete_acls
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.store import ACLS, Changes, Delete, Entry, Put, Snapshot, StoreError
from ottla.cluster.updates import applied
from ottla.protocol.errors import InvalidRequest
from ottla.security.acl import AclBinding, AclOperation, PatternType, Permission, ResourceType

names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)
acls = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    names.map(lambda name: f"User:{name}"),
    st.sampled_from(["*", "10.0.0.1", "::1"]),
    st.sampled_from(list(AclOperation)[2:13]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
EMPTY = MetadataImage("", NO_LEADER)


def acl(number: int = 0) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, f"t{number}", PatternType.LITERAL, "User:a", "*", AclOperation.READ, Permission.ALLOW
    )


def entry(each: AclBinding, revision: int = 1) -> Entry:
    return Entry(acl_key(each), acl_value(each), revision)


@given(acls)
def test_an_acl_comes_back_as_it_was(each: AclBinding) -> None:
    assert acl_of(entry(each)) == each
    assert acl_key(each).isascii()


@given(st.lists(st.tuples(st.booleans(), acls), max_size=20))
def test_the_image_follows_what_the_store_says(changes: list[tuple[bool, AclBinding]]) -> None:
    image, left = EMPTY, dict[str, AclBinding]()
    for revision, (is_put, each) in enumerate(changes, start=1):
        puts, deletes = ((entry(each, revision),), ()) if is_put else ((), (acl_key(each),))
        image = applied(image, Changes(revision, puts, deletes)).image
        if is_put:
            left[acl_key(each)] = each
        else:
            left.pop(acl_key(each), None)
    again = applied(EMPTY, Snapshot([entry(each) for each in left.values()], len(changes) + 1)).image
    assert dict(image.acls) == dict(again.acls) == left
    for each in left.values():
        assert each in about(image, each.resource_type, each.name)


def about(image: MetadataImage, kind: ResourceType, name: str) -> list[AclBinding]:
    found = [] if image.acl_index is None else image.acl_index.about(kind, name)
    return [each.acl for by_principal in found for some in by_principal.values() for each in some]


def test_a_snapshot_without_an_acl_takes_it_away() -> None:
    image = applied(EMPTY, Snapshot([entry(acl())], 1)).image
    image = applied(image, Snapshot([], 2)).image
    assert not image.acls
    assert not about(image, ResourceType.TOPIC, "t0")


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", acl_value(acl(1)), json.dumps({**json.loads(acl_value(acl())), "host": "nowhere"}).encode()],
)
def test_a_damaged_acl_is_said_by_its_key(value: bytes) -> None:
    """It may be another's value, or one that no request could have created."""
    with pytest.raises(StoreError, match=acl_key(acl())):
        acl_of(Entry(acl_key(acl()), value, 1))


def test_what_exists_is_not_written_again() -> None:
    image = applied(EMPTY, Snapshot([entry(acl())], 1)).image
    wanted = {acl_key(each): each for each in (acl(0), acl(1))}
    assert create_acls(image, wanted).changes == (Put(acl_key(acl(1)), acl_value(acl(1))),)


def test_too_many_of_one_request_are_refused() -> None:
    many = [acl(number) for number in range(ACLS_PER_REQUEST_MAX + 1)]
    with pytest.raises(InvalidRequest):
        create_acls(EMPTY, {acl_key(each): each for each in many})
    with pytest.raises(InvalidRequest):
        delete_acls(EMPTY, [acl_key(each) for each in many])


def test_what_is_gone_is_not_deleted_again() -> None:
    image = applied(EMPTY, Snapshot([entry(acl())], 1)).image
    assert delete_acls(image, [acl_key(acl(1)), acl_key(acl())]).changes == (Delete(acl_key(acl())),)
    assert acl_key(acl()).startswith(ACLS)
