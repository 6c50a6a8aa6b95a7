"""What a suite has exercised of the protocol: APIs and versions by client software, errors that were answered, what
groups went through, features. Counted where requests and answers pass, and merged over workers.

What could be answered and never was comes from the table of errors that Kafka answers to each API. It is imported where
it is needed, with the rules of faults: a broker that counts starts without them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.server.apis import APIS
from ottla.broker.server.connection_interfaces import ClientIdentity
from ottla.broker.server.request_context import RequestContext
from ottla.coordinator.facts import Fact, GenerationStarted, RebalanceStarted, StateChanged
from ottla.protocol.errors import ErrorCode
from ottla.testing.kafka_releases import difference_line, differences
from ottla.testing.message_features import errors_in, features_of

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Fault, Faults

SECTIONS: Final = ("apis", "errors", "injected", "transitions", "causes", "features")
APIS_SHOWN: Final = 4
COUNTED_MAX: Final = 10_000
"""Of APIs by client software. What clients call themselves beyond that is counted as OTHERS."""
OTHERS: Final = "others"
UNKNOWN: Final = "unknown"

Counts = Mapping[str, Mapping[str, int]]
"""By section, what was counted in it, as text."""


class Coverage:
    def __init__(self) -> None:
        self.began_ns = time_ns()
        self.counts: dict[str, Counter[str]] = {section: Counter() for section in SECTIONS}
        self._keys: dict[tuple[ClientIdentity | None, str, int], str] = {}

    # What passes the routes, and facts of groups.

    def asked(self, context: RequestContext, request: Any) -> None:
        """A request of a client."""
        asked = context.connection.client, context.route.api.name, context.api_version
        self.counts["apis"][self._keys.get(asked) or self._key_of(*asked)] += 1
        for feature in features_of(request):
            self.counts["features"][feature] += 1

    def _key_of(self, client: ClientIdentity | None, api: str, version: int) -> str:
        software = UNKNOWN
        if client is not None and client.software_name:
            software = f"{client.software_name} {client.software_version}"
        if len(self._keys) >= COUNTED_MAX:
            return f"{api} v{version} by {OTHERS}"
        key = self._keys[client, api, version] = f"{api} v{version} by {software}"
        return key

    def answered(self, api: str, response: Any) -> None:
        for code in errors_in(response):
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

    def note_injected(self, faults: "Iterable[Fault]") -> None:
        """What rules have answered in place of the broker, before they are removed."""
        from ottla.testing.faults.actions import Error

        for fault in faults:
            action = fault.rule.do
            if isinstance(action, Error):
                hits = [hit for hit in fault.hit_log if hit.machine_ns >= self.began_ns]
                self.counts["injected"].update(f"{hit.api} {action.code}" for hit in hits)

    # Of a whole suite.

    def with_injected(self, faults: "Faults | None") -> "Coverage":
        """A copy that has what the rules that are there now have answered."""
        copy = Coverage()
        copy.began_ns = self.began_ns
        copy.merge(self.counts)
        if faults is not None:
            copy.note_injected(faults.all_since_clear())
        return copy

    def merge(self, counts: Counts) -> None:
        for section, counted in counts.items():
            self.counts[section].update(counted)

    def plain(self) -> dict[str, dict[str, int]]:
        return {section: dict(sorted(counted.items())) for section, counted in self.counts.items()}

    def never_answered(self) -> dict[str, list[str]]:
        """By API that was used, the errors of Kafka's that were not answered."""
        from ottla.testing.faults.error_codes import codes_of

        used = {key.split(" ")[0] for key in self.counts["apis"]}
        seen = self.counts["errors"]
        missing: dict[str, list[str]] = {}
        for api in APIS.values():
            names = sorted(code.name for code in codes_of(api) if f"{api.name} {code.name}" not in seen)
            if api.name in used and names:
                missing[api.name] = names
        return missing

    def lines(self, target: str | None = None) -> list[str]:
        """Three, for the terminal, and one for what a release of `kafka_releases` does not have."""
        from ottla.testing.faults.error_codes import codes_of

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
            *(() if target is None else (difference_line(self.counts, target),)),
        ]

    def write(self, path: Path, target: str | None = None) -> None:
        """`target`: a release of `kafka_releases`; the file has what is otherwise in it. Raises OSError."""
        content: dict[str, Any] = {**self.plain(), "never": self.never_answered()}
        if target is not None:
            content |= {"target": target, "differs": differences(self.counts, target)}
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")

    def finish(
        self, file: Path | None, *, baseline: Path | None = None, target: str | None = None
    ) -> tuple[list[str], bool]:
        """Writes it, if there is a file to be written. Gives the lines for the terminal, and whether all is well: the
        file is written, and nothing is lost since the baseline."""
        wrong = [] if baseline is None else self.lost_lines(baseline)
        try:
            if file is not None:
                self.write(file, target)
        except OSError as error:
            wrong.append(f"cannot write {file}: {error.strerror}")
        return [*self.lines(target), *wrong], not wrong

    def lost_since(self, baseline: Counts) -> list[str]:
        """What an earlier suite had exercised, and this one has not. Versions of clients do not count."""
        lost: list[str] = []
        for section in SECTIONS:
            now = {_without_version(key) for key in self.counts[section]}
            before = dict.fromkeys(_without_version(key) for key in baseline.get(section, ()))
            lost += [f"{section}: {key}" for key in before if key not in now]
        return lost

    def lost_lines(self, baseline: Path) -> list[str]:
        """Since the suite that has written this file, for the terminal; empty where nothing is lost."""
        try:
            lost = self.lost_since(read_baseline(baseline))
        except (OSError, ValueError) as error:
            lost = [f"the baseline cannot be read: {error}"]
        return [f"lost: {each}" for each in lost]


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
