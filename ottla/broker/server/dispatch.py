"""From (API, version) to what serves it: the compiled parser, the handler, the compiled builder of the answer.

A route is made when the first request of its API and version arrives, and kept in a dictionary that the connections
look into themselves. The parameters of a handler before `context` and `request` name the parts of the broker that it
needs; the route gives it these. A handler that is a coroutine function runs in a task, with its request parked.
Answers that are asked for again and again are kept as bytes (`PreparedFrames`).
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable
from functools import partial
from inspect import CO_COROUTINE
from typing import Any, cast

from ottla.broker.histogram import Histogram, new_counts
from ottla.broker.logging import error_id
from ottla.broker.server.apis import API_VERSIONS, APIS, FETCH, JOIN_GROUP, METADATA, PRODUCE, SYNC_GROUP, Api
from ottla.protocol.codec import decoder, frame_encoder, frame_parts_encoder, frame_slices_encoder
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.schema import fields_of, is_flexible

VERSION_BITS = 16
Handle = Callable[[Any, Any], Any]
"""(context, request) to the response, or None for one that comes later."""
PartOf = Callable[[str], Any]
"""The part of the broker that has this name."""
Guarded = Callable[[Api, Handle], Handle]
"""What is called in place of a handler, where an authorizer is configured."""
FRAMES_KEPT_MAX = 256
# A rebalance brings a request of each member at the same time. A Fetch that names so much has dozens of partitions.
WAITS_FROM_BYTES = {JOIN_GROUP: 0, SYNC_GROUP: 0, FETCH: 1024}
NEVER_WAITS = 1 << 31


class Route:
    """How requests of one API in one version are served."""

    __slots__ = (
        "_response_class",
        "api",
        "build_frame",
        "build_in_slices",
        "comes_in_rushes",
        "decode",
        "defers_answer",
        "direct",
        "errors",
        "handle",
        "has_tagged_header",
        "parked",
        "request_bytes",
        "response_bytes",
        "version",
        "waits_from_bytes",
    )

    decode: Callable[[memoryview, int, int], tuple[Any, int]]
    """(buffer, start of the body, its end) to the request and where it ends; raises DecodeError."""
    handle: Callable[..., Any]
    build_frame: Callable[[Any, int], Any]
    """(response, correlation id) to the frame: bytes, or for records a list of buffers, the records uncopied."""
    build_in_slices: Callable[[Any, int], Generator[None, None, bytes]] | None
    """The same a little at a time, for what coroutines return: their responses may be long. Not those of Fetch."""

    def __init__(self, api: Api, version: int, handle: Callable[..., Any], *, in_slices: bool = False) -> None:
        self.api = api
        self.version = version
        self.handle = handle
        # A produce request is answered when the appends of the whole read event have been written.
        self.defers_answer = api.key == PRODUCE
        # Requests of this size or more wait where others keep the loop busy (`Turns`).
        self.comes_in_rushes = api.key in (JOIN_GROUP, SYNC_GROUP)
        self.waits_from_bytes = WAITS_FROM_BYTES.get(api.key, NEVER_WAITS)
        request_class = api.request_class()
        self.decode = decoder(request_class, version)
        self._response_class = api.response_class()
        self.build_in_slices = None if api.key == FETCH else self._slices
        if in_slices:
            self.build_frame = self._at_once
        else:
            frame = frame_parts_encoder if api.key == FETCH else frame_encoder
            self.build_frame = frame(self._response_class, version)
        if api.key == METADATA:
            self.build_frame = _prepared_or(self.build_frame)
        # How long its requests took: those answered in the read event that brought them, and those that were parked.
        self.direct = new_counts()
        self.parked = Histogram()
        # Of whole frames, their size fields included: as they were received, and given to the transport.
        self.request_bytes = self.response_bytes = 0
        # By code: of responses that are an error as a whole, and of partitions that were refused.
        self.errors: Counter[int] = Counter()
        # The header of a flexible version ends in tagged fields.
        self.has_tagged_header = is_flexible(request_class, version)

    @property
    def has_error_code(self) -> bool:
        """Whether its response can be an error as a whole."""
        return "error_code" in self._response_class.__slots__

    def error_response(self, error: Exception) -> Any | None:
        """The API's answer to a request that failed as a whole, or None where the API has no place for an error."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self.errors[int(code)] += 1
        if not self.has_error_code:
            return None
        response = self._response_class(error_code=int(code))
        if "error_message" in self._response_class.__slots__:
            response.error_message = str(error)
        return response

    def unexpected_error_response(self, error: Exception) -> Any | None:
        """The API's answer to a request on which its handler failed: it says by which id the log has the error. None
        where the API has no place for a sentence; the connection is closed then."""
        there = {field.name for field in fields_of(self._response_class) if self.version in field.versions}
        if not {"error_code", "error_message"} <= there:
            return None
        sentence = f"unexpected error {error_id(error)}: the broker's log has more by this id"
        return self.error_response(KafkaError(sentence))

    def _slices(self, response: Any, correlation_id: int) -> Generator[None, None, bytes]:
        # Compiled for the first response: the step that has received the request has compiled the decoder.
        return frame_slices_encoder(self._response_class, self.version)(response, correlation_id)

    def _at_once(self, response: Any, correlation_id: int) -> bytes:
        building = self._slices(response, correlation_id)
        while True:
            try:
                next(building)
            except StopIteration as end:
                return cast("bytes", end.value)


def _prepared_or(build: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    def build_frame(response: Any, correlation_id: int) -> Any:
        if type(response) is PreparedFrame:
            return response.with_correlation_id(correlation_id)
        return build(response, correlation_id)

    return build_frame


class PreparedFrame:
    """A whole answer as bytes, made before and used again with other correlation ids."""

    __slots__ = ("_after", "_size")

    def __init__(self, frame: bytes) -> None:
        self._size = frame[:4]
        self._after = frame[8:]

    def throttled(self, throttle_ms: int, *, after_tags: bool) -> "PreparedFrame":
        """The same with another throttle time, which comes first, where a header of tagged fields has one byte."""
        begin = int(after_tags)
        after = self._after
        changed = PreparedFrame.__new__(PreparedFrame)
        changed._size = self._size
        changed._after = after[:begin] + throttle_ms.to_bytes(4, "big") + after[begin + 4 :]
        return changed

    def with_correlation_id(self, correlation_id: int) -> bytes:
        return b"%b%b%b" % (self._size, correlation_id.to_bytes(4, "big", signed=True), self._after)


class PreparedFrames:
    """Answers made from one state of something; when it is another one, they are forgotten."""

    def __init__(self) -> None:
        self._state: Any = None
        self._frames: dict[Hashable, PreparedFrame] = {}

    def get(self, state: Any, key: Hashable) -> PreparedFrame | None:
        return self._frames.get(key) if self._state is state else None

    def put(self, state: Any, key: Hashable, frame: PreparedFrame) -> None:
        if self._state is not state or len(self._frames) >= FRAMES_KEPT_MAX:
            self._state = state
            self._frames = {}
        self._frames[key] = frame


class Dispatcher:
    """The routes made so far, by API key and version as one number, and the making of further ones."""

    def __init__(self, part: PartOf, guarded: Guarded | None = None) -> None:
        self.routes: dict[int, Route] = {}
        """What connections look into themselves, each by a reference of its own: it is changed in place."""
        self.made: dict[int, Route] = {}
        """The same routes, but for those that something stands in place of."""
        self.on_route: Callable[[Route], None] | None = None
        """Called with each route that is made from now on."""
        self._part = part
        self._guarded = guarded

    def resolve(self, api_and_version: int) -> Route | None:
        """The route, made now; None if this API or version is not served."""
        key, version = api_and_version >> VERSION_BITS, api_and_version & ((1 << VERSION_BITS) - 1)
        api = APIS.get(key)
        if api is None:
            return None
        if not api.min_version <= version <= api.max_version:
            return unsupported_api_versions_route(self._part) if key == API_VERSIONS else None
        handler = api.handler()
        handle = with_parts(handler, self._part)
        is_coroutine = bool(handler.__code__.co_flags & CO_COROUTINE)
        if is_coroutine:
            handle = partial(_handle_in_task, self._part("runtime"), handle)
        if self._guarded is not None:
            handle = self._guarded(api, handle)
        route = self.made[api_and_version] = Route(api, version, handle, in_slices=is_coroutine)
        if self.on_route is not None:
            self.on_route(route)
        served = self.routes[api_and_version] = self.in_place_of(route)
        return served

    def in_place_of(self, route: Route) -> Route:
        """What serves the requests of a route: the route itself. A dispatcher for tests may give another one."""
        return route


NewDispatcher = Callable[[PartOf, Guarded | None], Dispatcher]


def part_names(handle: Callable[..., Any]) -> tuple[str, ...]:
    """The parts of the broker that a handler needs: its parameters before `context` and `request`."""
    return handle.__code__.co_varnames[: handle.__code__.co_argcount - 2]


def with_parts(handle: Callable[..., Any], part: Callable[[str], Any]) -> Callable[..., Any]:
    names = part_names(handle)
    return partial(handle, *map(part, names)) if names else handle


def _handle_in_task(runtime: Any, handle: Callable[..., Any], context: Any, request: Any) -> None:
    context.respond_later(runtime, handle(context, request))


def unsupported_api_versions_route(part: Callable[[str], Any]) -> Route:
    """Answers an ApiVersions request of a version from the future, in version 0, whose layout every client reads.

    The client finds the versions that are served in it and asks again.
    """
    api = APIS[API_VERSIONS]
    route = Route(api, 0, with_parts(api.handler(), part))
    # Nothing behind the header can be understood, and nothing needs to be.
    route.decode = lambda buffer, start, end: (None, end)  # noqa: ARG005
    return route
