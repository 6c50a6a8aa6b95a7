"""A broker that answers what a test wants it to answer, spoken to over TCP."""

import socketserver
import threading
from collections.abc import Callable
from typing import Any

from ottla.protocol.codec import decode_whole
from ottla.protocol.messages import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    unregister_broker,
)
from tests.fakes.frames import parse_request_header, response_frame

MODULES = (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    unregister_broker,
)
REQUESTS = {
    cls.API_KEY: cls
    for module in MODULES
    for name, cls in vars(module).items()
    if name.endswith("Request") and isinstance(cls, type)
}
API_VERSIONS = 18

Answer = Callable[[Any, int], Any]


class FakeBroker:
    """Answers come from `answers` by request class: a function of (request, version), or a list of them used up one by
    one of which the last stays. What was asked is kept in `asked`."""

    def __init__(self, *, ranges: dict[int, tuple[int, int]] | None = None, api_versions_max: int = 4) -> None:
        self.ranges = {key: cls.VERSIONS for key, cls in REQUESTS.items()} if ranges is None else ranges
        self.api_versions_max = api_versions_max
        self.refuses_oddly = False
        self.answers: dict[type[Any], Answer | list[Answer]] = {}
        self.asked: list[tuple[Any, int]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.broker = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, cls: type[Any]) -> list[Any]:
        return [request for request, _ in self.asked if isinstance(request, cls)]

    def versions(self, cls: type[Any]) -> list[int]:
        return [version for request, version in self.asked if isinstance(request, cls)]

    def answer(self, cls: type[Any], *responses: Any) -> None:
        """Answer requests of a class with these responses in turn, the last one for ever."""
        self.answers[cls] = [lambda _request, _version, response=response: response for response in responses]

    def has_topics(self, *topics: metadata.MetadataResponseTopic, brokers: "list[FakeBroker] | None" = None) -> None:
        """Node ids are given in order from 0; this broker is the only one by default, broker 0 the controller."""
        nodes = [
            metadata.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=broker.port)
            for node_id, broker in enumerate(brokers or [self])
        ]
        by_name = {topic.name: topic for topic in topics}

        def answer(request: metadata.MetadataRequest, version: int) -> metadata.MetadataResponse:
            names = by_name if request.topics is None else [topic.name for topic in request.topics]
            described = [by_name.get(name) or metadata.MetadataResponseTopic(name=name, error_code=3) for name in names]
            return metadata.MetadataResponse(brokers=nodes, controller_id=0, topics=described)

        self.answers[metadata.MetadataRequest] = answer

    def respond(self, frame: bytes) -> bytes:
        header = parse_request_header(frame, REQUESTS)
        if header.api_key == API_VERSIONS:
            return self._versions_frame(header.api_version, header.correlation_id)
        request = decode_whole(REQUESTS[header.api_key], header.api_version, frame, header.body_offset)
        self.asked.append((request, header.api_version))
        answer = self.answers[type(request)]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return response_frame(answer(request, header.api_version), header.api_version, header.correlation_id)

    def _versions_frame(self, version: int, correlation_id: int) -> bytes:
        self.asked.append((api_versions.ApiVersionsRequest(), version))
        if version > self.api_versions_max:
            if self.refuses_oddly:
                return b"\0\0\0\x09" + correlation_id.to_bytes(4, "big") + b"\0\x23\xff\xff\xff"
            known = [api_versions.ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=self.api_versions_max)]
            refusal = api_versions.ApiVersionsResponse(error_code=35, api_keys=known)
            return response_frame(refusal, 0, correlation_id)
        rows = [
            api_versions.ApiVersion(api_key=k, min_version=lo, max_version=hi) for k, (lo, hi) in self.ranges.items()
        ]
        return response_frame(api_versions.ApiVersionsResponse(api_keys=rows), version, correlation_id)

    def __enter__(self) -> "FakeBroker":
        self.has_topics()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    broker: FakeBroker


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(size, "big"))
            self.wfile.write(self.server.broker.respond(frame))


class OtherServer:
    """Something that is no broker: sends `greeting` to a client that has sent something, then closes, or never
    says a word if the greeting is None."""

    def __init__(self, greeting: bytes | None) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(4096)
                if greeting is None:
                    self.request.recv(4096)
                else:
                    self.request.sendall(greeting)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> "OtherServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
