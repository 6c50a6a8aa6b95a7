"""HOST:PORT, as in `bootstrap.servers`, listeners and the URL of a metadata store."""

from typing import Final, NamedTuple

_PORT_MAX: Final = 65535


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        """A host with colons in it, an IPv6 address, stands in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether the name or address is each machine's own."""
    # Few processes ask.
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of_header(header: str) -> str:
    """The name or address in an HTTP header Host, in lower case."""
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
    return host.removeprefix("[").removesuffix("]").rstrip(".").lower()


def is_host_of_no_site(host: str) -> bool:
    """Whether it is `localhost` or an address. A page in a browser can have the name of its own site stand for a
    loopback address, but cannot ask for another name than that one (DNS rebinding)."""
    from ipaddress import ip_address

    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def is_everywhere(host: str) -> bool:
    """Whether it stands for all addresses of a machine: one can listen there, and not connect to it."""
    return host in ("", "0.0.0.0", "::")


def parse_address(text: str, *, port_min: int = 1, host_required: bool = True) -> Address:
    """HOST:PORT, an IPv6 address in brackets. `port_min=0` where 0 stands for any free port, `host_required=False`
    where no host stands for all interfaces. Raises ValueError with a sentence."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    is_host = is_bracketed == (":" in host) and (bool(host) or not host_required)
    is_port = port.isascii() and port.isdecimal() and len(port) <= len(str(_PORT_MAX))
    if not colon or not is_host or not is_port or not port_min <= int(port) <= _PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host, int(port))


def parse_addresses(text: str) -> list[Address]:
    """HOST:PORT[,HOST:PORT…], blanks around each let pass. Raises ValueError with a sentence."""
    return [parse_address(part.strip()) for part in text.split(",")]
