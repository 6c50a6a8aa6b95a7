"""The listeners of a broker: which ones its settings ask for, and where they are once they are bound."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.config.options import ConfigError
from ottla.broker.config.security import inter_broker_listener, inter_broker_login, protocol_of, sasl_of_listeners
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import PLAINTEXT, WITH_TLS, protocols
from ottla.broker.runtime import StartError
from ottla.broker.server.network import Network, address_for_clients
from ottla.broker.server.socket_server import Server
from ottla.cluster.image import Listener
from ottla.protocol.address import is_loopback
from ottla.security.authentication import PLAIN
from ottla.storage.files import reason_of

if TYPE_CHECKING:
    from ottla.broker.config.listener_tls import ListenerTls

Address = tuple[str, int]
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9092


class WantedListener(NamedTuple):
    """A socket to be bound. `advertised` is the address that clients get; None: what they can reach of where it is."""

    name: str
    host: str
    port: int
    advertised: Address | None = None


class Listeners:
    """All listeners of a broker, at least one."""

    def __init__(
        self,
        config: ServerConfig,
        listen: Address | None = None,
        advertise: Address | None = None,
        *,
        name: str = PLAINTEXT,
    ) -> None:
        """Those of the properties, or one called `name`, at `listen`, that clients know as `advertise`.

        Raises ConfigError with a sentence where the two, or the properties among themselves, contradict each other."""
        _check_one_way(config, listen, advertise)
        _check_protocols(config)
        listened_on = config.listeners or (Listener(name, *(listen or (DEFAULT_HOST, DEFAULT_PORT))),)
        names = [each.name for each in listened_on]
        self.wanted = [WantedListener(*each, _advertised(config, names, each.name, advertise)) for each in listened_on]
        self.inter_broker = inter_broker_listener(config, names)
        """The name of the listener by which brokers reach each other."""
        self.sasl = sasl_of_listeners(config, names)
        """How clients log in, on the listeners where they have to."""
        self.tls = _tls_of(config, names)
        """Keys and certificates, on the listeners with TLS."""
        self.inter_broker_login = inter_broker_login(config, self.inter_broker)
        """How this broker logs in to others; None: it need not."""
        self.opened: list[Listener] = []
        """Where they are open."""
        self.endpoints: tuple[Listener, ...] = ()
        """The addresses that clients and other brokers get."""
        self.admin_url = ""
        """Of the admin listener, for those who look at brokers from outside; empty where there is none."""

    async def open(self, server: Server, network: Network) -> None:
        """Raises StartError where an address, or the keys of access tokens, cannot be had; none is open then."""
        for sasl in server.sasl.values():
            for keys in sasl.token_keys:
                await keys.load()
                keys.keep_fresh()
        for wanted in self.wanted:
            try:
                opened = await server.listen(network, wanted.name, wanted.host, wanted.port)
            except OSError as error:
                server.close_listeners()
                address = Listener(wanted.name, wanted.host, wanted.port).address
                raise StartError(f"cannot listen on {address}: {reason_of(error)}") from None
            advertised = wanted.advertised or (address_for_clients(opened.host), opened.port)
            self.opened.append(Listener(wanted.name, opened.host, opened.port))
            self._warn_of(server, self.opened[-1])
            self.endpoints += (Listener(wanted.name, *advertised),)

    def _warn_of(self, server: Server, opened: Listener) -> None:
        """Of what can be read, or changed, on its way over a network (§51.7)."""
        log = server.runtime.log
        if opened.name in self.tls:
            return
        if not is_loopback(opened.host):
            log.warning("listener without encryption", listener=opened.name, address=opened.address)
        sasl = self.sasl.get(opened.name)
        if sasl is not None and PLAIN in sasl.mechanisms:
            log.warning("passwords of PLAIN are not encrypted", listener=opened.name, address=opened.address)

    def admin_opened(self, url: str) -> None:
        """One on all interfaces is reached by the host that clients get."""
        scheme, _, address = url.partition("://")
        host, _, port = address.rpartition(":")
        if host in ("0.0.0.0", "[::]"):
            first = self.wanted[0]
            host = first.advertised[0] if first.advertised is not None else address_for_clients(host.strip("[]"))
            address = Listener("", host, int(port)).address
        self.admin_url = f"{scheme}://{address}"

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the first, for clients."""
        return self.endpoints[0].address


def _tls_of(config: ServerConfig, names: list[str]) -> "Mapping[str, ListenerTls]":
    """Raises ConfigError."""
    if not any(protocol_of(config, name) in WITH_TLS for name in names):
        return {}
    # Imported here: a broker without TLS starts without it.
    from ottla.broker.config.listener_tls import tls_of_listeners

    return tls_of_listeners(config, names)


def _check_one_way(config: ServerConfig, listen: Address | None, advertise: Address | None) -> None:
    if config.listeners and listen is not None:
        raise ConfigError("listeners and --listen both say where to listen: give one of them")
    if advertise is not None and (config.listeners or config.advertised_listeners):
        raise ConfigError("--advertise is for --listen alone: beside listeners, use advertised.listeners")


def _check_protocols(config: ServerConfig) -> None:
    known = protocols(config.listener_security_protocol_map)
    for listener in config.listeners:
        if listener.name not in known:
            raise ConfigError(f"listener.security.protocol.map has no protocol for the listener {listener.name}")


def _advertised(config: ServerConfig, names: list[str], name: str, advertise: Address | None) -> Address | None:
    if not config.advertised_listeners:
        return advertise
    advertised = {each.name: (each.host, each.port) for each in config.advertised_listeners}
    unknown = next((each for each in advertised if each not in names), None)
    if unknown is not None:
        raise ConfigError(f"advertised.listeners has {unknown}, which is not among the listeners {', '.join(names)}")
    if name not in advertised:
        # A client that came by it could learn the address of no broker at all.
        raise ConfigError(f"advertised.listeners has no address for the listener {name}")
    return advertised[name]
