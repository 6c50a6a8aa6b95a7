"""A listener with SASL in virtual time, and clients of it that speak bytes."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.config.security import MechanismSettings, SaslSettings
from ottla.broker.config.server import ServerConfig
from ottla.broker.loop_wheel import TransportLoginClock
from ottla.broker.server.apis import APIS
from ottla.broker.server.connection import Connection
from ottla.broker.server.dispatch import VERSION_BITS, Route
from ottla.broker.server.socket_server import Server
from ottla.cluster.image import MetadataImage
from ottla.protocol.client import parse_response
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Message
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.security.authentication import Principal
from ottla.security.client import Secret
from ottla.security.scram import ScramClient
from ottla.security.scram_credential import ScramHash, credential_of, salted_password
from ottla.timer.wheel import TimingWheel
from tests.broker.test_connection import FakeTransport, feed
from tests.broker.wire import RecordingLog
from tests.fakes.frames import build_request_frame

SCRAM = ScramHash.SHA_256
SASL, PLAINTEXT = "SASL", "PLAINTEXT"
PASSWORDS = {"alice": Secret("wonderland"), "bob": Secret("builder")}
GOOD, WRONG = b"\0alice\0wonderland", b"\0alice\0wrong"
# Any request that is served after the login; its handler is the world's.
ASK = DescribeClusterRequest()
ASK_API, ASK_VERSION = 60, 0
SALT = b"0123456789abcdef"
CREDENTIAL = credential_of(SCRAM, SALT, salted_password(SCRAM, b"wonderland", SALT, 4096), 4096)


class Transport(FakeTransport):
    """Closes at once, since it has sent everything."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.protocol: Connection = connection
        self.is_closed = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)

    abort = close


class SaslWorld:
    """Time passes by `pass_ms`; the wall clock by `wall_ms` alone."""

    def __init__(
        self,
        *,
        reauthentication_ms: int = 0,
        delay_ms: int = 100,
        receive_bytes: int = 64 * 1024,
        inter_broker: str = PLAINTEXT,
        **settings: str,
    ) -> None:
        """`settings`: properties of the broker, with underscores for dots."""
        self.now_ms = 1_000
        self.wall_ms = 1_700_000_000_000
        self.wheel = TimingWheel()
        self.wheel.advance(self.now_ms)
        self.log = RecordingLog()
        self.asked: list[Principal] = []
        """Who has sent a request that was served, login and versions left out."""
        self.parked: list[Any] = []
        """Their contexts, while `parks`."""
        self.parks = False
        self._soon: list[Any] = []
        self.image = MetadataImage("cluster", 0, scram_credentials={(SCRAM, "alice"): CREDENTIAL}, decoy_secret=b"x")
        runtime = self._runtime(ServerConfig({key.replace("_", "."): value for key, value in settings.items()}))
        parts: dict[str, Any] = {"metadata": self, "runtime": runtime}
        mechanisms = {
            name: MechanismSettings(reauthentication_ms, PASSWORDS if name == "PLAIN" else {})
            for name in ("PLAIN", "SCRAM-SHA-256")
        }
        self.server = Server(
            runtime,
            FetchSessionCache(10, lambda: 1),
            inter_broker_listener=inter_broker,
            # Handlers of what is refused have the others, and are not called.
            part=lambda name: self.server if name == "server" else parts.get(name),
            sasl={SASL: SaslSettings(mechanisms, receive_bytes, delay_ms)},
        )
        self.dispatcher = self.server.dispatcher
        self.dispatcher.routes[ASK_API << VERSION_BITS | ASK_VERSION] = Route(APIS[ASK_API], ASK_VERSION, self._handle)

    def _runtime(self, config: ServerConfig) -> Any:
        clock: Any = SimpleNamespace(
            now_ms=lambda: self.now_ms, now_ns=lambda: self.now_ms * 1_000_000, wall_ms=lambda: self.wall_ms
        )
        return SimpleNamespace(
            clock=clock,
            login_clock=TransportLoginClock(clock),
            config=config,
            is_serving=True,
            log=self.log,
            soon=self._soon.append,
            end_event=lambda: None,
            guard=lambda action: action(),
            wheel=self.wheel,
        )

    def _handle(self, context: Any, request: DescribeClusterRequest) -> DescribeClusterResponse | None:
        self.asked.append(context.principal)
        if not self.parks:
            return DescribeClusterResponse(cluster_id="cluster")
        context.park(mutes=False)
        self.parked.append(context)
        return None

    def connect(self, listener: str = SASL) -> "SaslClient":
        return SaslClient(self, listener)

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.wheel.advance(self.now_ms)
        self.end_event()

    def end_event(self) -> None:
        while self._soon:
            self._soon.pop(0)()


class SaslClient:
    def __init__(self, world: SaslWorld, listener: str) -> None:
        self.world = world
        self.connection = Connection(world.server, listener)
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self._received = 0

    def send(self, data: bytes) -> None:
        if not self.transport.is_closed and not self.transport.reading_paused:
            feed(self.connection, data)

    def receive(self) -> bytes:
        """The next answer that is there; empty if there is none."""
        frames = self.transport.frames
        if self._received == len(frames):
            return b""
        self._received += 1
        return frames[self._received - 1]

    def call(self, request: Message, response: Any, version: int) -> Any:
        """None where there is no answer."""
        self.send(build_request_frame(request, version, 7, "c"))
        return self.answer(response, version)

    def answer(self, response: Any, version: int) -> Any:
        frame = self.receive()
        return parse_response(response, version, frame[4:]) if frame else None

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)

    def authenticate(self, token: bytes = GOOD, version: int = 1) -> Any:
        return self.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)

    def login(self, token: bytes = GOOD) -> Any:
        assert self.handshake().error_code == 0
        return self.authenticate(token)

    def ask(self) -> bool:
        """Whether a request is served."""
        return self.call(ASK, DescribeClusterResponse, ASK_VERSION) is not None

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closed

    def scram(self, user: str = "alice", password: str = "wonderland") -> Any:
        """The last answer of a login by SCRAM."""
        assert self.handshake("SCRAM-SHA-256").error_code == 0
        by = ScramClient(SCRAM, user, password, "nonce-of-the-client")
        first = self.authenticate(by.first())
        last = self.authenticate(by.final(first.auth_bytes))
        if last is not None and not last.error_code:
            by.check(last.auth_bytes)
        return last


def frame(request: Message, version: int) -> bytes:
    return build_request_frame(request, version, 7, "c")


HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
RAW_HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 0)
VERSIONS = frame(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
ASK_FRAME = frame(ASK, ASK_VERSION)


def token_frame(token: bytes = GOOD, version: int = 1) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=token), version)


def raw_frame(token: bytes = GOOD) -> bytes:
    return len(token).to_bytes(4, "big") + token
