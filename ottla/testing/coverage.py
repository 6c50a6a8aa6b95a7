"""What a suite has exercised of the protocol: APIs and versions by client software, errors that were answered, what
groups went through, features. Counted where requests and answers pass, and merged over workers.

What could be answered and never was comes from the table of errors that Kafka answers to each API.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ottla.broker.server.apis import APIS
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.facts import Fact, GenerationStarted, RebalanceStarted, StateChanged
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import BATCH_HEADER_SIZE, parse_batch_header
from ottla.protocol.records.compression import Codec
from ottla.protocol.schema import Message
from ottla.testing.faults.actions import Error
from ottla.testing.faults.error_codes import codes_of
from ottla.testing.faults.faults import Faults

SECTIONS: Final = ("apis", "errors", "injected", "transitions", "causes", "features")
APIS_SHOWN: Final = 4
LISTS: Final = (list, tuple)
RESETS: Final = {-2: "reset to earliest", -1: "reset to latest"}

Counts = Mapping[str, Mapping[str, int]]
"""By section, what was counted in it, as text."""


class Coverage:
    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {section: Counter() for section in SECTIONS}

    # What passes the routes, and facts of groups.

    def asked(self, context: RequestContext, request: Any) -> None:
        """A request of a client."""
        client = context.connection.client
        software = "unknown" if client is None else f"{client.software_name} {client.software_version}"
        self.counts["apis"][f"{context.route.api.name} v{context.api_version} by {software}"] += 1
        self.counts["features"].update(features_of(request))

    def answered(self, api: str, response: Any) -> None:
        for code in set(errors_in(response)):
            self.failed(api, code)

    def failed(self, api: str, code: int) -> None:
        self.counts["errors"][f"{api} {error_name(code)}"] += 1

    def observe(self, fact: Fact, now_ms: int) -> None:
        """For the observers of a group coordinator."""
        del now_ms
        match fact:
            case StateChanged():
                self.counts["transitions"][f"{fact.from_state} to {fact.to_state}"] += 1
            case RebalanceStarted():
                self.counts["causes"][str(fact.cause)] += 1
            case GenerationStarted() if "cooperative" in fact.protocol_name:
                self.counts["features"]["cooperative rebalancing"] += 1
            case _:
                pass

    def note_injected(self, faults: Faults) -> None:
        """What rules have answered in place of the broker, before they are removed."""
        for fault in faults.all_since_clear():
            action = fault.rule.do
            if isinstance(action, Error):
                self.counts["injected"].update(f"{hit.api} {action.code}" for hit in fault.hit_log)

    # Of a whole suite.

    def merge(self, counts: Counts) -> None:
        for section, counted in counts.items():
            self.counts[section].update(counted)

    def plain(self) -> dict[str, dict[str, int]]:
        return {section: dict(sorted(counted.items())) for section, counted in self.counts.items()}

    def never_answered(self) -> dict[str, list[str]]:
        """By API that was used, the errors of Kafka's that were not answered."""
        used = {key.split(" ")[0] for key in self.counts["apis"]}
        seen = self.counts["errors"]
        missing: dict[str, list[str]] = {}
        for api in APIS.values():
            names = sorted(code.name for code in codes_of(api) if f"{api.name} {code.name}" not in seen)
            if api.name in used and names:
                missing[api.name] = names
        return missing

    def lines(self) -> list[str]:
        """Three, for the terminal."""
        apis = {key.split(" by ")[0] for key in self.counts["apis"]}
        software = sorted({key.split(" by ", 1)[1] for key in self.counts["apis"]})
        injected = sum(self.counts["injected"].values())
        missing = sorted(self.never_answered().items(), key=lambda item: -len(item[1]))
        all_codes = {api.name: len(codes_of(api)) for api in APIS.values()}
        shown = ", ".join(f"{api} {len(names)} of {all_codes[api]}" for api, names in missing[:APIS_SHOWN])
        groups = f"{len(self.counts['transitions'])} transitions, {len(self.counts['causes'])} causes of rebalances"
        features = ", ".join(sorted(self.counts["features"])) or "none"
        return [
            f"{len(apis)} versions of APIs, by {', '.join(software) or 'no client'}",
            f"{len(self.counts['errors'])} errors answered ({injected} times by rules); never: {shown or 'none'}",
            f"groups: {groups}; features: {features}",
        ]

    def write(self, path: Path) -> None:
        content = {**self.plain(), "never": self.never_answered()}
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")

    def lost_since(self, baseline: Counts) -> list[str]:
        """What an earlier suite had exercised, and this one has not. Versions of clients do not count."""
        lost: list[str] = []
        for section in SECTIONS:
            now = {_without_version(key) for key in self.counts[section]}
            before = dict.fromkeys(_without_version(key) for key in baseline.get(section, ()))
            lost += [f"{section}: {key}" for key in before if key not in now]
        return lost


def _without_version(key: str) -> str:
    """`Produce v11 by librdkafka 2.6.1` without the last word: a new client is no loss, another API version is."""
    return key.rsplit(" ", 1)[0] if " by " in key else key


def read_baseline(path: Path) -> Counts:
    """Raises OSError, ValueError."""
    content: Any = json.loads(path.read_text())
    try:
        return {section: {str(key): int(count) for key, count in content[section].items()} for section in SECTIONS}
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"{path} is no file that --ottla-coverage has written") from None


def error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)


def errors_in(message: Any) -> Iterator[int]:
    """All error codes of a response that are not 0."""
    if not isinstance(message, Message):
        return
    names: tuple[str, ...] = getattr(type(message), "__slots__", ())
    for name in names:
        value: Any = getattr(message, name)
        if name.endswith("error_code"):
            if value:
                yield int(value)
        elif type(value) in LISTS:
            for each in value:
                yield from errors_in(each)


def features_of(request: Any) -> Iterable[str]:
    if getattr(request, "group_instance_id", None):
        yield "static members"
    if getattr(request, "rack_id", ""):
        yield "racks"
    if getattr(request, "isolation_level", 0):
        yield "read_committed"
    if getattr(request, "transactional_id", None):
        yield "transactions"
    if getattr(request, "acks", -1) == 0:
        yield "acks=0"
    for topic in getattr(request, "topic_data", None) or ():
        for data in topic.partition_data:
            if data.records is not None and len(data.records) >= BATCH_HEADER_SIZE:
                yield from _features_of_batch(data.records)
    for topic in getattr(request, "topics", None) or ():
        for each in getattr(topic, "partitions", None) or ():
            reset = RESETS.get(getattr(each, "timestamp", 0))
            if reset is not None:
                yield reset


def _features_of_batch(records: memoryview) -> Iterable[str]:
    header = parse_batch_header(records)
    if header.producer_id >= 0:
        yield "idempotence"
    if header.codec in Codec.__members__.values() and header.codec:
        yield f"compression {Codec(header.codec).name.lower()}"
