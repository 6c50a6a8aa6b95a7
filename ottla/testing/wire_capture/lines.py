"""A capture as lines for people and scripts: one for each exchange, when it was answered, with its fields and bytes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from ottla.broker.server.apis import APIS
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message
from ottla.testing.wire_capture.exchanges import (
    Answered,
    CapturedExchange,
    CapturedPeer,
    Closed,
    FrameParts,
    Happened,
    NotAnswered,
    NotKafka,
    Opened,
    Said,
)
from ottla.testing.wire_capture.fields import (
    FieldPlace,
    error_name,
    hex_lines,
    places,
    plain,
    record_count,
    record_lines,
    shown_value,
)
from ottla.testing.wire_capture.file_format import RecordKind
from ottla.testing.wire_words import brief, with_topic_names

NS_PER_MS: Final = 1_000_000
WIDTH_OF_BYTES: Final = 3 * 16
ORDERLY: Final = ("client", "broker stops")
STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True)
class ShownParts:
    """What is shown, and how much of it."""

    apis: frozenset[str] = frozenset()
    """In small letters; empty: all."""
    clients: tuple[str, ...] = ()
    """Client ids, with * and ?; empty: all."""
    groups: frozenset[str] = frozenset()
    only_errors: bool = False
    detail: int = 0
    """1: fields by name, and what else happened; 2: their bytes too."""

    @property
    def is_all(self) -> bool:
        return not (self.apis or self.clients or self.groups or self.only_errors)

    def has(self, exchange: CapturedExchange) -> bool:
        peer = exchange.peer
        if self.apis and exchange.api.lower() not in self.apis:
            return False
        if self.clients and not any(fnmatchcase(peer.client_id or "", each) for each in self.clients):
            return False
        if self.groups and self.groups.isdisjoint(_groups(exchange)):
            return False
        return not self.only_errors or bool(exchange.error or exchange.answer is None or _wrong(exchange))


def _groups(exchange: CapturedExchange) -> Iterable[str]:
    """Those that it names; of a request that names none, those of its connection."""
    message = None if exchange.request is None else exchange.request.message
    named = getattr(message, "group_id", None)
    return (named,) if named else exchange.peer.groups


def _wrong(exchange: CapturedExchange) -> str:
    parts = (exchange.request, exchange.answer)
    return "; ".join(each.wrong for each in parts if each is not None and each.wrong)


def text_lines(
    said: Iterable[Said], shown: ShownParts, began_ns: int, topics: Mapping[bytes, str], *, has_secrets: bool
) -> Iterator[str]:
    """`began_ns`: what times are counted from. `topics`: names by ids."""
    for each in said:
        match each:
            case Answered(exchange) | NotAnswered(exchange):
                if shown.has(exchange):
                    yield _line(exchange, began_ns, topics)
                    if shown.detail:
                        yield from _details(exchange, shown.detail, hides_secrets=not has_secrets)
            case Opened() | Closed() | NotKafka() | Happened() if shown.is_all:
                line = _other_line(each, shown.detail)
                if line:
                    yield f"{_ms(each.at_ns, began_ns):10.1f}  {line}"
            case _:
                pass


def _ms(at_ns: int, began_ns: int) -> float:
    return (at_ns - began_ns) / NS_PER_MS


def _line(exchange: CapturedExchange, began_ns: int, topics: Mapping[bytes, str]) -> str:
    request, answer = exchange.request, exchange.answer
    first = request or answer
    assert first is not None, "an exchange has a request or an answer"
    words = [f"{_ms(first.at_ns, began_ns):10.1f}", exchange.peer.name]
    if request is None:
        return "  ".join([*words, f"an answer to a request from before the capture, {len(first.frame)} bytes"])
    what = brief(request.message) if request.message is not None else f"{len(request.frame)} bytes"
    what = with_topic_names(what, topics)
    words.append(f"{exchange.api} v{exchange.version}{f' {what}' if what else ''}")
    if answer is None:
        words.append("no answer")
    else:
        outcome = error_name(exchange.error) if exchange.error else "ok"
        words.append(f"{outcome} {_ms(answer.at_ns, request.at_ns):.1f} ms{_answered_what(answer.message)}")
    wrong = _wrong(exchange)
    if wrong:
        words.append(f"not understood: {wrong}")
    return "  ".join(words)


def _answered_what(message: Any) -> str:
    """What an answer brings, where that is more than an error code."""
    match type(message).__name__:
        case "FetchResponse":
            count = sum(record_count(part.records) for topic in message.responses for part in topic.partitions)
            return f", {count} records" if count else ""
        case "ProduceResponse":
            offsets = [part.base_offset for topic in message.responses for part in topic.partition_responses]
            return f", at {', '.join(map(str, offsets[:3]))}" if any(each >= 0 for each in offsets) else ""
        case "JoinGroupResponse":
            role = f"leads {len(message.members)}" if message.leader == message.member_id else "follows"
            return f", generation {message.generation_id}, {role}" if message.generation_id >= 0 else ""
        case _:
            return ""


def _other_line(said: Opened | Closed | NotKafka | Happened, detail: int) -> str:
    match said:
        case Opened(peer):
            before = ", open before the capture" if peer.is_open_before else ""
            return f"connection {peer.number} of {peer.peer} to {peer.listener}, broker {peer.node}{before}" * (
                detail > 0
            )
        case Closed(peer, _, cause, why):
            is_worth_it = detail > 0 or cause not in ORDERLY
            return f"{peer.name} closed: {cause}{f' ({why})' if why else ''}" * is_worth_it
        case NotKafka(peer, _, start, is_received):
            who = "received" if is_received else "sent"
            return f"{peer.name} {who} bytes that are no frame: {start.hex(' ')}"
        case Happened(RecordKind.MARK, _, fields):
            return f"mark: {', '.join(str(each) for each in fields.values())}"
        case Happened(RecordKind.FAULT, _, fields):
            return _hit_line(fields)
        case Happened(RecordKind.END, _, fields):
            end = str(fields.get("cause"))
            return "" if end == STOPPED else f"the capture ended early: {end}"
        case Happened(_, _, fields):
            return ("fact: " + " ".join(f"{name}={value}" for name, value in fields.items())) * (detail > 0)


def _hit_line(fields: Mapping[str, Any]) -> str:
    """Of a rule that has acted."""
    units: list[Any] = fields["units"] if isinstance(fields.get("units"), list) else []
    request = f"{fields.get('api')} v{fields.get('version')} #{fields.get('correlation_id')}"
    on = "".join(f" {unit}" for unit in units)
    said = f"{fields.get('action')}: {request} of {fields.get('client_id')}{on}"
    return f"fault: rule {fields.get('rule')}, {said}"


def _details(exchange: CapturedExchange, detail: int, *, hides_secrets: bool) -> Iterator[str]:
    api = APIS.get(exchange.api_key)
    for sign, part in ((">", exchange.request), ("<", exchange.answer)):
        if part is None:
            continue
        classes = (None, None) if api is None else (api.request_class(), api.response_class())
        cls = classes[sign == "<"]
        version = exchange.version if sign == ">" else exchange.answer_version
        yield from _part_lines(sign, part, cls, version, detail, hides_secrets=hides_secrets)


def _part_lines(
    sign: str, part: FrameParts, cls: type[Message] | None, version: int, detail: int, *, hides_secrets: bool
) -> Iterator[str]:
    end = 0
    if cls is not None and cls.VERSIONS[0] <= version <= cls.VERSIONS[1] and part.body_from < len(part.frame):
        if detail > 1:
            yield from (
                f"      {sign} {line:<{WIDTH_OF_BYTES + 8}} header" for line in hex_lines(part.frame, 0, part.body_from)
            )
        end = part.body_from
        try:
            for place in places(cls, version, part.frame, part.body_from):
                end = place.end
                yield from _place_lines(sign, part.frame, place, detail, hides_secrets=hides_secrets)
        except DecodeError as error:
            yield f"      {sign} not understood from here: {error}"
    if end < len(part.frame) and (detail > 1 or cls is None):
        yield from (
            f"      {sign} {line:<{WIDTH_OF_BYTES + 8}} left over"
            for line in hex_lines(part.frame, end, len(part.frame))
        )


def _place_lines(sign: str, frame: bytes, place: FieldPlace, detail: int, *, hides_secrets: bool) -> Iterator[str]:
    said = f"{place.path}: {shown_value(place, hides_secrets=hides_secrets)}"
    is_hidden = "[hidden" in said
    if detail > 1:
        first, *others = list(hex_lines(frame, place.start, place.end)) or [f"{place.start:06x}"]
        if is_hidden:
            first, others = f"{place.start:06x}", []
        yield f"      {sign} {first:<{WIDTH_OF_BYTES + 8}} {said}"
        yield from (f"      {sign} {line}" for line in others)
    elif place.type_name not in ("count", "tags") or place.value is None:
        yield f"      {sign} {said}"
    if place.type_name == "records" and place.value:
        yield from (f"      {sign}   {line}" for line in record_lines(place.value))


def json_lines(said: Iterable[Said], shown: ShownParts, began_ns: int) -> Iterator[str]:
    """An object for each line, with all that is known of it."""
    for each in said:
        fields: dict[str, Any] | None = None
        match each:
            case Answered(exchange) | NotAnswered(exchange):
                fields = _exchange_fields(exchange, began_ns) if shown.has(exchange) else None
            case Opened(peer, at_ns) if shown.is_all:
                fields = {"kind": "opened", "at_ms": _ms(at_ns, began_ns), **_peer_fields(peer)}
            case Closed(peer, at_ns, cause, why) if shown.is_all:
                fields = {"kind": "closed", "at_ms": _ms(at_ns, began_ns), **_peer_fields(peer)}
                fields |= {"cause": cause, "why": why}
            case NotKafka(peer, at_ns, start, is_received) if shown.is_all:
                fields = {"kind": "not kafka", "at_ms": _ms(at_ns, began_ns), **_peer_fields(peer)}
                fields |= {"is_received": is_received, "start": start.hex()}
            case Happened(kind, at_ns, details) if shown.is_all:
                fields = {"kind": kind.name.lower(), "at_ms": _ms(at_ns, began_ns), "fields": details}
            case _:
                pass
        if fields is not None:
            yield json.dumps(fields, ensure_ascii=False)


def _peer_fields(peer: CapturedPeer) -> dict[str, Any]:
    return {
        "connection": peer.number,
        "name": peer.name,
        "client_id": peer.client_id,
        "software": peer.software,
        "node": peer.node,
        "listener": peer.listener,
        "peer": peer.peer,
    }


def _exchange_fields(exchange: CapturedExchange, began_ns: int) -> dict[str, Any]:
    request, answer = exchange.request, exchange.answer
    first = request or answer
    assert first is not None, "an exchange has a request or an answer"
    fields: dict[str, Any] = {"kind": "exchange", "at_ms": _ms(first.at_ns, began_ns), **_peer_fields(exchange.peer)}
    fields |= {"number": exchange.number, "api": exchange.api, "version": exchange.version}
    fields |= {"correlation_id": exchange.correlation_id, "test": exchange.test}
    if request is not None:
        fields["request"] = None if request.message is None else plain(request.message, exchange.version)
    if answer is not None:
        fields["answer"] = None if answer.message is None else plain(answer.message, exchange.answer_version)
        fields["error"] = error_name(exchange.error) if exchange.error else None
        if request is not None:
            fields["duration_ms"] = _ms(answer.at_ns, request.at_ns)
    wrong = _wrong(exchange)
    return fields | ({"not_understood": wrong} if wrong else {})
