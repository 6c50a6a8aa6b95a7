"""The metadata store's requests and answers in the JSON of etcd's gateway: bytes are base64, 64-bit numbers are
strings, and what is zero or empty is left out. Pure.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.cluster.store import ABSENT, NO_LEASE, Change, Changes, CommitResult, Committed, Conflict, Entry, Expect, Put

Json = Mapping[str, Any]

# etcd's default bound on the operations of a transaction, counted along each branch of nested transactions.
OPERATIONS_MAX = 128
# Three levels of so many changes each: more than fit into etcd's bound on a request's bytes.
_CHANGES_PER_LEVEL = 40


# etcd's default bound on the bytes of a request, and what a change takes in it beside its key and value.
_REQUEST_BYTES_MAX = 1_572_864
_CHANGE_BYTES = 24


class TransactionTooLarge(Exception):
    """etcd would refuse a transaction of this size."""


def range_request(prefix: str, limit: int, after: str | None = None, revision: int = 0) -> dict[str, Any]:
    """Up to `limit` entries under a prefix, from the one after a key on, as they were at a revision (0: now)."""
    begin = prefix if after is None else after + "\0"
    request: dict[str, Any] = {"key": encoded(begin), "range_end": _prefix_end(prefix), "limit": str(limit)}
    if revision:
        request["revision"] = str(revision)
    return request


def entries_of(answer: Json, namespace: str) -> list[Entry]:
    return [_entry(kv, namespace) for kv in answer.get("kvs", ())]


def transaction_request(expected: Sequence[Expect], changes: Sequence[Change], namespace: str) -> dict[str, Any]:
    """Raises TransactionTooLarge. Beyond etcd's bound changes are nested: transactions without conditions, each in the
    success branch of the one above, are one transaction still."""
    size_bytes = sum(_size_bytes(change, namespace) for change in changes)
    if size_bytes > _REQUEST_BYTES_MAX:
        raise TransactionTooLarge(
            f"{len(changes)} changes of {size_bytes} bytes, at most {_REQUEST_BYTES_MAX} in one transaction"
        )
    operations = [_operation(change, namespace) for change in changes]
    if max(len(expected), len(operations)) > OPERATIONS_MAX:
        if len(expected) > _CHANGES_PER_LEVEL or len(operations) > _CHANGES_PER_LEVEL**3:
            raise TransactionTooLarge(f"{len(expected)} expectations and {len(operations)} changes in one transaction")
        while len(operations) > _CHANGES_PER_LEVEL:
            operations = [{"request_txn": {"success": chunk}} for chunk in _chunks(operations)]
    return {
        "compare": [
            {
                "key": encoded(namespace + each.key),
                "target": "MOD",
                "result": "EQUAL",
                "mod_revision": str(each.revision),
            }
            for each in expected
        ],
        "success": operations,
        "failure": [{"request_range": {"key": encoded(namespace + each.key), "keys_only": True}} for each in expected],
    }


def transaction_result(answer: Json, expected: Sequence[Expect]) -> CommitResult:
    if answer.get("succeeded", False):
        return Committed(revision_of(answer))
    for each, response in zip(expected, answer.get("responses", ()), strict=True):
        kvs = response["response_range"].get("kvs", ())
        if (int(kvs[0]["mod_revision"]) if kvs else ABSENT) != each.revision:
            return Conflict(each.key)
    raise ValueError("etcd refused a transaction all expectations of which hold")


def watch_request(prefix: str, from_revision: int) -> dict[str, Any]:
    return {
        "create_request": {
            "key": encoded(prefix),
            "range_end": _prefix_end(prefix),
            "start_revision": str(from_revision),
        }
    }


def changes_of(result: Json, namespace: str) -> Iterator[Changes]:
    """The transactions in an answer of a watch; etcd sends all that one revision did in one answer."""
    by_revision: dict[int, list[Json]] = {}
    for event in result.get("events", ()):
        by_revision.setdefault(int(event["kv"]["mod_revision"]), []).append(event)
    for revision, events in sorted(by_revision.items()):
        puts = tuple(_entry(event["kv"], namespace) for event in events if event.get("type", "PUT") == "PUT")
        deletes = tuple(_key(event["kv"], namespace) for event in events if event.get("type") == "DELETE")
        yield Changes(revision, puts, deletes)


def revision_of(answer: Json) -> int:
    """The store's revision when it answered."""
    return int(answer.get("header", {}).get("revision", 0))


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def _operation(change: Change, namespace: str) -> dict[str, Any]:
    key = encoded(namespace + change.key)
    if not isinstance(change, Put):
        return {"request_delete_range": {"key": key}}
    put = {"key": key, "value": b64encode(change.value).decode()}
    if change.lease_id != NO_LEASE:
        put["lease"] = str(change.lease_id)
    return {"request_put": put}


def _size_bytes(change: Change, namespace: str) -> int:
    value = change.value if isinstance(change, Put) else b""
    return len(namespace) + len(change.key.encode()) + len(value) + _CHANGE_BYTES


def _chunks(operations: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(operations), _CHANGES_PER_LEVEL):
        yield operations[start : start + _CHANGES_PER_LEVEL]


def _entry(kv: Json, namespace: str) -> Entry:
    return Entry(_key(kv, namespace), b64decode(kv.get("value", "")), int(kv["mod_revision"]))


def _key(kv: Json, namespace: str) -> str:
    return b64decode(kv["key"]).decode().removeprefix(namespace)


def _prefix_end(prefix: str) -> str:
    """The first key that does not begin so. Prefixes end in a character that has a successor of the same length."""
    assert prefix, "an etcd prefix is never empty: keys stand in a namespace"
    last = prefix.encode()
    return b64encode(last[:-1] + bytes([last[-1] + 1])).decode()
