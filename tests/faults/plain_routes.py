"""Routes without a broker behind them: their requests name two of everything, and their handlers answer all of it."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.server.apis import APIS, Api
from ottla.broker.server.dispatch import Route
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.schema import fields_of
from ottla.security.authentication import ANONYMOUS
from ottla.testing.faults.request_units import Level, Unit, levels_of, put_in, struct_of, units_of
from ottla.testing.faults.requests import serve
from ottla.testing.faults.rules import parse_rule
from ottla.testing.faults.state import FaultState

APIS_BY_NAME = {api.name: api for api in APIS.values()}
TOPICS = ("orders", "payments")
TOPIC_IDS = (b"\x01" * 16, b"\x02" * 16)
GROUPS = ("shop", "bank")
RESOURCE_TYPES = (2, 32)


class Clock:
    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.ms


class Image:
    def __init__(self) -> None:
        self.topics = {name: SimpleNamespace(partitions=[0, 1]) for name in TOPICS}

    def name_of(self, topic_id: bytes) -> str:
        return dict(zip(TOPIC_IDS, TOPICS, strict=True)).get(topic_id, "")


class Parts:
    """As `FaultParts`, of a broker that is not there."""

    def __init__(self, node_id: int = 0) -> None:
        self.node_id = node_id
        self.image = Image()
        self.fetch_sessions = SimpleNamespace(session=lambda _: None)
        self.runtime = SimpleNamespace(broker_clock=Clock(), end_event=lambda: None, log=None, node_id=node_id)
        self.waiting: dict[Any, None] = {}

    def ordinal(self, connection: Any) -> int:
        return int(connection.number)


class Connection:
    """What a context asks of its connection, and the frames that it was given."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.principal = ANONYMOUS
        self.listener_name = "PLAINTEXT"
        self.is_inter_broker = self.is_closed = False
        self.peer_host = "127.0.0.1"
        self.client = None
        self.buffer = memoryview(b"billing-1")
        self.frames: list[bytes] = []
        self.context: Any = None

    def park(self, context: RequestContext) -> None:
        self.context = context

    def send_completed(self, more_bytes: int) -> None:
        self.frames.append(self.context.frame)

    def close(self, reason: object, why: str | None) -> None:
        self.is_closed = True


def request_of(api: Api, version: int) -> Any:
    """It names two of everything that the API can name."""
    request = api.request_class()()
    there = {field.name for field in fields_of(type(request)) if version in field.versions}
    for name, value in {"group_id": "shop", "member_id": "m-1", "group_instance_id": "i-1", "key": "shop"}.items():
        if name in there:
            setattr(request, name, value)
    for name in ("transactional_id", "v3_and_below_transactional_id"):
        if name in there:
            setattr(request, name, "tx")
    if "acks" in there:
        request.acks = -1
    _fill(request, levels_of(api, version))
    return request


def answered(api: Api, version: int, request: Any) -> Any:
    """A response without errors to what the request names."""
    levels = levels_of(api, version)
    response = api.response_class()()
    for unit in units_of(request, levels):
        if any(level.answered for level in levels):
            made = put_in(response, levels, unit)
            if hasattr(made, "partitions") and api.name in ("Metadata", "DescribeTopicPartitions"):
                struct = struct_of(type(made), "partitions")
                made.partitions = [struct(partition_index=index, leader_id=1) for index in range(2)]
    if api.name == "DescribeLogDirs":
        response.results = [struct_of(type(response), "results")(log_dir=each) for each in ("/a", "/b")]
    return response


class Served:
    """One request to a route with rules."""

    def __init__(self, api: Api, version: int, *rules: dict[str, Any]) -> None:
        self.asked: list[Unit] | None = None
        """What the plain handler was asked for; None where it was not called."""
        self.states = [state_of(rule) for rule in rules]
        self.plain = Route(api, version, self._handle)
        self.parts: Any = Parts()
        self.connection = Connection()

    def frame(self, request: Any | None = None) -> bytes:
        """Of the answer to `request_of` its API."""
        api, version = self.plain.api, self.plain.version
        context = context_of(self.plain, self.connection)
        request = request_of(api, version) if request is None else request
        response = serve(self.plain, self.parts, self.states, context, request)
        if response is None:
            return joined(self.connection.frames[-1])
        return joined(self.plain.build_frame(response, 7))

    def _handle(self, context: RequestContext, request: Any) -> Any:
        api, version = self.plain.api, self.plain.version
        self.asked = units_of(request, levels_of(api, version))
        return answered(api, version, request)


def context_of(plain: Route, connection: Any) -> RequestContext:
    """Of a request with the correlation id 7, of the client billing-1."""
    context = RequestContext(connection)
    context.route, context.api_version, context.correlation_id = plain, plain.version, 7
    context.client_id_position, context.client_id_length = 0, len(connection.buffer)
    return context


def state_of(rule: dict[str, Any], seed: int = 0) -> FaultState:
    return FaultState(parse_rule(rule, new_id=lambda: "rule"), seed, {}.__getitem__)


def joined(frame: Any) -> bytes:
    return frame if isinstance(frame, bytes) else b"".join(frame)


def _fill(owner: Any, levels: tuple[Level, ...]) -> None:
    if not levels:
        return
    level, *deeper = levels
    names = level.asked[:1]
    struct = next(field.struct for field in fields_of(type(owner)) if field.name == names[0])
    # What is answered without its level is answered once.
    elements = [_element(level, struct, index) for index in range(2 if level.answered else 1)]
    for element in elements:
        _fill(element, tuple(deeper))
    setattr(owner, names[0], elements)


def _element(level: Level, struct: Any, index: int) -> Any:
    if struct is None:
        return _value(level.keys[0].field, index)
    element = struct()
    for key in level.keys:
        setattr(element, key.asked, _value(key.field or key.asked, index))
    if hasattr(element, "transactional_id"):
        element.transactional_id = f"tx-{index}"
    return element


def _value(field: str, index: int) -> Any:
    values: dict[str, Any] = {
        "topic": TOPICS[index],
        "topic_id": TOPIC_IDS[index],
        "group": GROUPS[index],
        "partition": index,
        "resource_type": RESOURCE_TYPES[index],
        "producer_id": 100 + index,
        "entity": [],
    }
    return values.get(field, f"{field}-{index}")
