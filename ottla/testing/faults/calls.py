"""One request as fault rules see it: who sends it, and what it names. All that takes time is found when asked for."""

from base64 import urlsafe_b64encode
from collections.abc import Hashable
from typing import Any, Final, Protocol

from ottla.broker.server.apis import METADATA
from ottla.broker.server.dispatch import Route
from ottla.broker.server.peer_connection import BROKER_CLIENT_ID
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import MetadataImage
from ottla.protocol.messages.fetch import FetchPartition, FetchTopic
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import Message, fields_of
from ottla.protocol.source import has_views
from ottla.testing.faults.error_places import has_inner_partitions
from ottla.testing.faults.request_units import Level, Unit, is_asked_for_all, levels_of, units_of
from ottla.testing.faults.rules import FIND_COORDINATOR, top_fields

FETCH, PRODUCE = "Fetch", "Produce"
NO_ACKS: Final = 0
CONNECTIONS_KEPT: Final = 10_000
_BEHIND_ALL: Final = 1 << 20
_KEY_FIELDS: Final = {0: "group", 1: "transactional_id"}
_OF_BROKERS: Final = {"WriteTxnMarkers": 0, "AddPartitionsToTxn": 4}


class FaultCall:
    """A request, before it is served. `when` and `call` of rules get it.

    `body` is the decoded request (`ottla.protocol.messages`), `api` and `version` what it is, `client_id` who sends it,
    `node_id` the broker that it has come to; `values` are the fields that rules match of the whole request, `units` the
    topics, partitions or groups that it names."""

    __slots__ = ("_client_id", "_is_for_all", "_parts", "_peer", "_units", "_values", "body", "context", "route")

    def __init__(self, parts: "FaultParts", route: Route, context: RequestContext, body: Any) -> None:
        self.route = route
        self.context = context
        self.body = body
        self._parts = parts
        self._units: list[Unit] | None = None
        self._values: dict[str, Any] | None = None
        self._client_id: str | None = None
        self._peer: str | None = None
        self._is_for_all: bool | None = None

    @property
    def levels(self) -> tuple[Level, ...]:
        return levels_of(self.route.api, self.route.version)

    @property
    def is_for_all(self) -> bool:
        """Whether it asks for all topics or groups there are; the response names them."""
        if self._is_for_all is None:
            is_first_metadata = self.route.api.key == METADATA and self.version == 0
            asks = is_asked_for_all(self.body, self.levels)
            self._is_for_all = asks or (is_first_metadata and not self.body.topics)
        return self._is_for_all

    @property
    def has_no_response(self) -> bool:
        """A produce request with acks=0 has none."""
        return self.api == PRODUCE and bool(self.body.acks == NO_ACKS)

    @property
    def api(self) -> str:
        return self.route.api.name

    @property
    def version(self) -> int:
        return self.route.version

    @property
    def node_id(self) -> int:
        return self._parts.node_id

    @property
    def client_id(self) -> str:
        if self._client_id is None:
            self._client_id = self.context.client_id or ""
        return self._client_id

    @property
    def peer(self) -> str:
        """`broker` for requests of brokers, else `client`."""
        if self._peer is None:
            self._peer = self._find_peer()
        return self._peer

    def _find_peer(self) -> str:
        is_broker = self.api in _OF_BROKERS and self.version >= _OF_BROKERS[self.api]
        if self.api == FETCH:
            state = self.body.replica_state
            is_broker = (self.body.replica_id if state is None else state.replica_id) >= 0
        elif not is_broker:
            is_broker = self.context.connection.is_inter_broker and self.client_id.startswith(BROKER_CLIENT_ID)
        return "broker" if is_broker else "client"

    @property
    def software(self) -> str:
        """NAME/VERSION as the client has said it in ApiVersions; empty where it has not."""
        client = self.context.connection.client
        return "" if client is None else f"{client.software_name}/{client.software_version}"

    @property
    def values(self) -> dict[str, Any]:
        if self._values is None:
            self._values = self._find_values()
        return self._values

    @property
    def units(self) -> list[Unit]:
        if self._units is None:
            self._units = self._find_units()
        return self._units

    def keep_views(self) -> None:
        """Copies what the request has of the receive buffer: its place is needed for what comes next."""
        if has_views(self.route.api.request_class(), self.version):
            _keep_views(self.body)

    def _find_values(self) -> dict[str, Any]:
        named = top_fields(self.route.api, self.version)
        found = {name: getattr(self.body, field) for name, field in named.items()}
        if "key" in found and self.body.key_type in _KEY_FIELDS:
            found[_KEY_FIELDS[self.body.key_type]] = self.body.key
        return found

    def _find_units(self) -> list[Unit]:
        units = self._units_of_all() if self.is_for_all else units_of(self.body, self.levels)
        if self.api == FETCH:
            units += self._units_of_session(units)
        for unit in units:
            if "topic_id" in unit.values:
                self._name_topic(unit.values)
            elif self.api == FIND_COORDINATOR and self.body.key_type in _KEY_FIELDS:
                unit.values[_KEY_FIELDS[self.body.key_type]] = unit.values["key"]
        if has_inner_partitions(self.route.api):
            return [Unit(unit.path, unit.elements, {**unit.values, "partition": None}) for unit in units]
        return units

    def _name_topic(self, values: dict[str, Any]) -> None:
        topic_id = values.pop("topic_id")
        if topic_id != ZERO_UUID:
            values["topic_id"] = urlsafe_b64encode(topic_id).decode().rstrip("=")
            values["topic"] = values.get("topic") or self._parts.image.name_of(topic_id)

    def _units_of_all(self) -> list[Unit]:
        """Without a place in the request: which there are, the response says."""
        named = {key.field for level in self.levels for key in level.keys}
        if "topic" not in named:
            return []
        topics = self._parts.image.topics
        if "partition" not in named:
            return [Unit((), (), {"topic": name}) for name in topics]
        return [
            Unit((), (), {"topic": name, "partition": index})
            for name, topic in topics.items()
            for index in range(len(topic.partitions))
        ]

    def _units_of_session(self, named: list[Unit]) -> list[Unit]:
        """What an incremental fetch fetches without naming it."""
        session = self._parts.fetch_sessions.session(self.body.session_id) if self.body.session_epoch > 0 else None
        if session is None:
            return []
        there = {(unit.elements[0].topic_id, unit.elements[0].topic, unit.elements[1].partition) for unit in named}
        there |= {
            (topic.topic_id, topic.topic, index)
            for topic in self.body.forgotten_topics_data
            for index in topic.partitions
        }
        found: list[Unit] = []
        for number, target in enumerate(session.targets.values(), _BEHIND_ALL):
            topic_id, name = (target.topic_id, "") if session.uses_topic_ids else (ZERO_UUID, target.topic)
            if (topic_id, name, target.partition) in there:
                continue
            values = {"topic_id": topic_id} if session.uses_topic_ids else {"topic": name}
            elements = FetchTopic(topic=name, topic_id=topic_id), FetchPartition(partition=target.partition)
            found.append(Unit((number, 0), elements, {**values, "partition": target.partition}))
        return found


def _keep_views(message: Message) -> None:
    for field in fields_of(type(message)):
        value: Any = getattr(message, field.name)
        if type(value) is memoryview:
            setattr(message, field.name, memoryview(bytearray(value)))
        elif field.struct is not None:
            for each in value if field.is_array else [value]:
                if each is not None:
                    _keep_views(each)


class WaitingRequest(Protocol):
    def end_wait(self) -> None:
        """Its world ends."""


class FaultParts:
    """The parts of a broker that fault rules need."""

    def __init__(self, part: Any) -> None:
        """`part` gives the part that has a name."""
        self._part = part
        self._ordinals: dict[Hashable, int] = {}
        self._seen = 0
        self.waiting: dict[WaitingRequest, None] = {}
        """Those that rules hold up, in the order in which they came."""

    @property
    def runtime(self) -> Any:
        return self._part("runtime")

    @property
    def image(self) -> MetadataImage:
        image: MetadataImage = self._part("metadata").image
        return image

    @property
    def fetch_sessions(self) -> Any:
        return self._part("fetch_sessions")

    @property
    def muted(self) -> Any:
        return self._part("server").muted

    @property
    def node_id(self) -> int:
        node_id: int = self.runtime.node_id
        return node_id

    def ordinal(self, connection: Any) -> int:
        """The how-manieth connection it is of those whose requests rules have looked at, from 1 on."""
        known = self._ordinals.get(connection)
        if known is None:
            self._seen += 1
            known = self._ordinals[connection] = self._seen
            if len(self._ordinals) > CONNECTIONS_KEPT:
                # The oldest goes first; one that is open then counts as another.
                del self._ordinals[next(iter(self._ordinals))]
        return known

    def drop_waiting(self) -> None:
        """Their world ends."""
        for request in list(self.waiting):
            request.end_wait()
        self.waiting.clear()

    def forget_ordinals(self) -> None:
        self._ordinals.clear()
        self._seen = 0
