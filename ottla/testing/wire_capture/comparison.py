"""Two captures side by side: what clients and brokers said otherwise.

Connections are compared with those of their role: client software, client id, and what they are used for. Their
exchanges are aligned by API. What only passes the time is left out: heartbeats and fetches that bring nothing, and
requests that are repeated with the same outcome. Of each pair of exchanges the first difference counts.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import iterate_records
from ottla.protocol.schema import Message
from ottla.testing.wire_capture.exchanges import (
    Answered,
    CapturedExchange,
    CapturedPeer,
    ExchangeReader,
    NotAnswered,
)
from ottla.testing.wire_capture.fields import (
    DECOMPRESSED_MAX,
    batch_headers,
    bytes_text,
    error_name,
    record_count,
    uuid_text,
)
from ottla.testing.wire_capture.file_format import CaptureError, CaptureFile
from ottla.testing.wire_capture.identities import NOTHING, PRODUCER, TIMES, TOPIC, Identities, Leaf, leaves

SHOWN_MAX: Final = 120
GROUP_APIS: Final = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"})
TRANSACTION_APIS: Final = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"})
COMMON_APIS: Final = frozenset({"ApiVersions", "Metadata", "SaslHandshake", "SaslAuthenticate", "FindCoordinator"})


class Role(NamedTuple):
    software: str
    """Its name, without the version."""
    client_id: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.client_id or self.software or 'client'}"


@dataclass(frozen=True, slots=True)
class WireDifference:
    connection: str
    exchange: str
    """API and version, and the numbers of the exchanges."""
    path: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.connection}  {self.exchange}  {self.path}: A {self.a}, B {self.b}"

    def to_json(self) -> str:
        fields = {name: getattr(self, name) for name in ("connection", "exchange", "path", "a", "b")}
        return json.dumps(fields, ensure_ascii=False)


@dataclass(slots=True)
class Conversation:
    """What one client connection asked, in order."""

    peer: CapturedPeer
    exchanges: list[CapturedExchange]

    @property
    def role(self) -> Role:
        software = self.peer.software.rpartition(" ")[0]
        return Role(software, self.peer.client_id or "", kind_of({each.api for each in self.exchanges}))


def kind_of(apis: set[str]) -> str:
    """What a connection is used for, by the APIs that were asked for on it."""
    for kind, named in (("group", GROUP_APIS), ("transaction", TRANSACTION_APIS)):
        if apis & named:
            return kind
    if "Produce" in apis:
        return "producer"
    if "Fetch" in apis:
        return "consumer"
    return "bootstrap" if apis <= COMMON_APIS else "admin"


def compare(a: Path, b: Path) -> list[WireDifference]:
    """Raises CaptureError for what is no capture, or damaged."""
    sides = [conversations(path) for path in (a, b)]
    roles: list[dict[Role, list[Conversation]]] = []
    for side in sides:
        by_role: dict[Role, list[Conversation]] = defaultdict(list)
        for each in side:
            by_role[each.role].append(each)
        roles.append(by_role)
    ids = Identities()
    found: list[WireDifference] = []
    for role in dict.fromkeys([*roles[0], *roles[1]]):
        ours, theirs = roles[0].get(role, []), roles[1].get(role, [])
        for one, other in zip(ours, theirs, strict=False):
            found += _of_connections(str(role), one, other, ids)
        if len(ours) != len(theirs):
            counts = f"{len(ours)} connections", f"{len(theirs)} connections"
            found.append(WireDifference(str(role), "-", "connections", *counts))
    return found


def conversations(path: Path) -> list[Conversation]:
    """Of clients, in the order in which they began. Raises CaptureError."""
    found: dict[int, Conversation] = {}
    with CaptureFile(path) as file:
        reader = ExchangeReader()
        for said in (*reader.said(file.records()), *reader.rest()):
            if isinstance(said, Answered | NotAnswered) and said.exchange.request is not None:
                peer = said.exchange.peer
                found.setdefault(peer.number, Conversation(peer, [])).exchanges.append(said.exchange)
        if file.damage is not None:
            raise CaptureError(file.damage)
    for each in found.values():
        each.exchanges.sort(key=lambda exchange: exchange.number)
    return [each for each in found.values() if not each.peer.is_of_broker]


def _of_connections(label: str, a: Conversation, b: Conversation, ids: Identities) -> Iterator[WireDifference]:
    ours, theirs = _what_counts(a.exchanges), _what_counts(b.exchanges)
    matcher = SequenceMatcher(None, [each.api for each in ours], [each.api for each in theirs], autojunk=False)
    for what, begin_a, end_a, begin_b, end_b in matcher.get_opcodes():
        if what == "equal":
            for one, other in zip(ours[begin_a:end_a], theirs[begin_b:end_b], strict=True):
                yield from _of_exchanges(label, one, other, ids)
            continue
        for each in ours[begin_a:end_a]:
            yield WireDifference(label, f"{each.api} v{each.version} (#{each.number})", "exchange", "asked", "did not")
        for each in theirs[begin_b:end_b]:
            yield WireDifference(label, f"{each.api} v{each.version} (#{each.number})", "exchange", "did not", "asked")


def _what_counts(exchanges: list[CapturedExchange]) -> list[CapturedExchange]:
    kept: list[CapturedExchange] = []
    asked: set[tuple[Any, ...]] = set()
    for each in exchanges:
        if each.answer is None and each.request is not None and each.request.message is None:
            continue
        if each.error == 0 and (each.api == "Heartbeat" or (each.api == "Fetch" and not _fetched(each))):
            continue
        if kept and _outcome(kept[-1]) == _outcome(each) and each.api not in ("Produce", "Fetch", "OffsetCommit"):
            continue
        if each.api in COMMON_APIS and each.request is not None:
            question = *_outcome(each), each.request.frame[each.request.body_from :]
            if question in asked:
                continue
            asked.add(question)
        kept.append(each)
    return kept


def _fetched(exchange: CapturedExchange) -> int:
    message = None if exchange.answer is None else exchange.answer.message
    if message is None:
        return 0
    return sum(record_count(part.records) for topic in message.responses for part in topic.partitions)


def _outcome(exchange: CapturedExchange) -> tuple[Any, ...]:
    return exchange.api, exchange.version, exchange.error, exchange.answer is None


def _of_exchanges(label: str, a: CapturedExchange, b: CapturedExchange, ids: Identities) -> Iterator[WireDifference]:
    said = f"{a.api} v{a.version} (#{a.number}, #{b.number})"
    if a.version != b.version:
        yield WireDifference(label, said, "version", str(a.version), str(b.version))
        return
    found = list(_differing(a, b, ids))
    if found:
        path, one, other = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        yield WireDifference(label, said, path + more, one, other)


def _differing(a: CapturedExchange, b: CapturedExchange, ids: Identities) -> Iterator[tuple[str, str, str]]:
    group = str(getattr(a.request and a.request.message, "group_id", "") or "")
    for side, version, one, other in (
        ("request", a.version, a.request, b.request),
        ("answer", a.answer_version, a.answer, b.answer),
    ):
        if one is None or other is None:
            if one is not other:
                yield side, "nothing" if one is None else "came", "nothing" if other is None else "came"
            continue
        if one.message is None or other.message is None or a.answer_version != b.answer_version:
            if one.frame[4:] != other.frame[4:]:
                yield side, f"{len(one.frame)} bytes", f"{len(other.frame)} bytes"
            continue
        for leaf in leaves(one.message, other.message, version, ids, group):
            if not is_same(leaf, ids):
                texts = _shown_records(leaf) if leaf.name == "records" else None
                yield (f"{side}.{leaf.path}", *(texts or (shown(leaf, leaf.a), shown(leaf, leaf.b))))


def is_same(leaf: Leaf, ids: Identities) -> bool:
    """Whether two values mean the same in their captures."""
    a, b = leaf.a, leaf.b
    if a is NOTHING or b is NOTHING:
        return False
    if leaf.kind is not None:
        return ids.bind(leaf.kind, leaf.scope, a, b)
    if leaf.name.endswith(TIMES) and isinstance(a, int) and isinstance(b, int):
        return (a < 0) == (b < 0)
    if leaf.name == "records":
        return _records(a) == _records(b) and _producers_match(a, b, ids)
    return bool(a == b)


def _records(data: Any) -> list[Any]:
    """Keys, values and headers, wherever batches begin and end."""
    found: list[Any] = []
    for position, header in batch_headers(data or b""):
        batch = bytes(data[position : position + header.size_bytes])
        try:
            found += [(each.key, each.value, each.headers) for each in iterate_records(batch, DECOMPRESSED_MAX)]
        except KafkaError:
            found.append(batch[61:])
    return found


def _producers_match(a: Any, b: Any, ids: Identities) -> bool:
    pairs = zip(batch_headers(a or b""), batch_headers(b or b""), strict=False)
    return all(ids.bind(PRODUCER, None, one.producer_id, other.producer_id) for (_, one), (_, other) in pairs)


def _shown_records(leaf: Leaf) -> tuple[str, str] | None:
    """The first records that differ, where there are two."""
    for one, other in zip(_records(leaf.a), _records(leaf.b), strict=False):
        if one != other and not isinstance(one, bytes) and not isinstance(other, bytes):
            return _record_text(one), _record_text(other)
    return None


def _record_text(record: tuple[Any, ...]) -> str:
    key, value, headers = record
    parts = [f"{name} {bytes_text(part)}" for name, part in (("key", key), ("value", value)) if part is not None]
    return ", ".join([*parts, *(f"header {name}" for name, _ in headers)]) or "a record of nothing"


def shown(leaf: Leaf, value: Any) -> str:
    if value is NOTHING or value is None:
        return "nothing" if value is NOTHING else "null"
    if leaf.name == "error_code":
        return error_name(value) if value else "no error"
    if leaf.name == "records":
        return f"{record_count(value)} records, {len(value)} bytes"
    if isinstance(value, bytes):
        return uuid_text(value) if leaf.kind == TOPIC else bytes_text(value)
    text = "something" if isinstance(value, Message) else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
