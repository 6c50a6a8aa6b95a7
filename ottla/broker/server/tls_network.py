"""The network with TLS on every connection that this broker makes: what peers connect by where the listener of the
brokers has TLS."""

import asyncio
import ssl
from collections.abc import Callable

from ottla.broker.runtime import Runtime
from ottla.broker.server.network import ListeningSocket, Network
from ottla.broker.server.tls_connection import InnerProtocol, TlsConnection, ciphertext_buffer


class TlsNetwork:
    def __init__(self, network: Network, runtime: Runtime, context: Callable[[], ssl.SSLContext]) -> None:
        """`context` gives the one that holds now."""
        self._network = network
        self._runtime = runtime
        self._context = context
        self._ciphertext = ciphertext_buffer()

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, *, backlog: int
    ) -> ListeningSocket:
        """Without TLS, as with the network itself."""
        return await self._network.listen(protocol_factory, host, port, backlog=backlog)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.Transport:
        """Gives the connection after its handshake. Raises OSError where no peer answers, or one that is not to be
        trusted."""
        done: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        # It may fail when its caller is gone, which is no news.
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

        def connecting() -> ConnectingTls:
            # Whose buffers are views, as peers have them.
            inner: InnerProtocol = protocol_factory()  # type: ignore[assignment]
            return ConnectingTls(inner, self._context(), self._ciphertext, self._runtime.soon, host, done)

        transport = await self._network.connect(connecting, host, port)
        try:
            return await done
        except BaseException:
            transport.abort()
            raise


class ConnectingTls(TlsConnection):
    """A connection to another broker."""

    __slots__ = ("_done", "_why")

    def __init__(
        self,
        inner: InnerProtocol,
        context: ssl.SSLContext,
        ciphertext: memoryview,
        soon: Callable[[Callable[[], None]], object],
        host: str,
        done: "asyncio.Future[asyncio.Transport]",
    ) -> None:
        super().__init__(inner, context, ciphertext, soon, server_name=host)
        self._done = done
        self._why: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._advance()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(
                ConnectionError(f"no TLS handshake: {exc or 'the other side has closed the connection'}")
            )
        super().connection_lost(exc if self._why is None else ConnectionError(self._why))

    def _established(self) -> None:
        if not self._done.done():
            self._done.set_result(self)

    def _failed(self, why: str) -> None:
        self._why = f"TLS: {why}"
        if not self._done.done():
            self._done.set_exception(ConnectionError(f"no TLS handshake: {why}"))
        self.close()
