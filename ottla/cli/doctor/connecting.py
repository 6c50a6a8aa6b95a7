"""Looking at an address from here, step by step: its name, TCP, what is spoken, whether the login succeeds (D1), and
what time it is there."""

import asyncio
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from time import time
from typing import TypeVar

from ottla.cli.connection import BrokerConnection
from ottla.cli.failures import ClientError, LoginFailed, NoAnswer
from ottla.protocol.address import Address
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.client import LoginCredentials

WITHIN_S = 5.0
# The header Date has whole seconds: the time is up to one later.
DATE_STEP_MS = 1000
RESPONSE_BYTES_MAX = 16 * 1024
Result = TypeVar("Result")


@dataclass(slots=True)
class AddressLook:
    """`problem` is a sentence, None where a broker answers; `does_resolve` is False where it is the name."""

    address: Address
    problem: str | None = None
    advice: str = ""
    does_resolve: bool = True
    is_login_refused: bool = False
    """Everything before the login succeeded."""
    steps: list[str] = field(default_factory=list[str])
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    supported: dict[str, int] = field(default_factory=dict[str, int])
    finalized: dict[str, int] = field(default_factory=dict[str, int])


async def look_at(
    address: Address,
    login: LoginCredentials | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = WITHIN_S,
) -> AddressLook:
    """With a login and TLS, if there is something for them. Never raises for what is at the address."""
    look, loop = AddressLook(address), asyncio.get_running_loop()
    try:
        found = await _timed(look, "the name resolves", loop.getaddrinfo(address.host, address.port), timeout_s)
    except (OSError, TimeoutError):
        look.does_resolve = False
        look.problem = f"{address} does not resolve here"
        look.advice = "check the name; a name of a container network resolves inside of it alone"
        return look
    numbers = ", ".join(dict.fromkeys(str(each[4][0]) for each in found))
    look.steps[-1] += f" to {numbers}"
    try:
        _, writer = await _timed(look, "TCP connects", asyncio.open_connection(*address), timeout_s)
    except TimeoutError:
        look.problem = f"TCP to {address} gets no answer within {timeout_s:g} s"
        look.advice = "a firewall drops it, or the machine is down"
        return look
    except OSError:
        look.problem = f"nothing listens at {address}"
        look.advice = "start the broker, or look for its port: `listeners` in its properties"
        return look
    writer.close()
    connection = await _look_at_protocol(look, tls, timeout_s)
    if connection is not None:
        if login is not None:
            await _look_at_login(look, connection, login, timeout_s)
        await connection.close()
    return look


async def _look_at_protocol(look: AddressLook, tls: ssl.SSLContext | None, timeout_s: float) -> BrokerConnection | None:
    address = look.address
    opening = BrokerConnection.open(address, timeout_s, tls=tls)
    try:
        connection = await _timed(look, "ApiVersions is answered", opening, timeout_s)
    except (ClientError, TimeoutError) as error:
        if tls is not None:
            look.problem = str(error) or f"{address} does not answer over TLS within {timeout_s:g} s"
            look.advice = "check --ca and --cert, or ssl.* of --command-config; the broker's log says what it refuses"
        elif await _speaks_tls(address, timeout_s):
            look.problem = f"TCP to {address} works, but it speaks TLS"
            look.advice = "give clients security.protocol=SSL (or SASL_SSL), and this command --ca FILE or --tls"
        elif await _speaks_http(address, timeout_s):
            look.problem = f"TCP to {address} works, but it speaks HTTP"
            look.advice = "this may be the admin listener; brokers' listeners are in the property `listeners`"
        else:
            silent = isinstance(error, NoAnswer | TimeoutError)
            said = f"no answer to ApiVersions comes: {error}" if silent else str(error)
            look.problem = f"TCP to {address} works, but {said}"
            look.advice = "a broker before Kafka 0.10, one that is stopped or overloaded, or no broker at all"
        return None
    look.ranges, look.supported = connection.ranges, connection.supported_features
    look.finalized = connection.finalized_features
    return connection


async def _look_at_login(
    look: AddressLook, connection: BrokerConnection, login: LoginCredentials, timeout_s: float
) -> None:
    what = f"the login as {login.user} by {login.mechanism} succeeds"
    try:
        await _timed(look, what, connection.log_in(login, timeout_s), timeout_s)
    except (ClientError, TimeoutError) as error:
        look.is_login_refused = isinstance(error, LoginFailed)
        look.problem = str(error) or f"{look.address} does not answer the login within {timeout_s:g} s"
        look.advice = "check the user, its password and the mechanism; the broker's log says more than its clients get"


async def mechanisms_at(address: Address, tls: ssl.SSLContext | None = None, timeout_s: float = WITHIN_S) -> list[str]:
    """Those by which one can log in there; none where the listener wants no login, or does not say. A server names them
    to a client that wants another one."""
    try:
        connection = await BrokerConnection.open(address, timeout_s, tls=tls)
    except ClientError:
        return []
    try:
        answer = await connection.ask(SaslHandshakeRequest(mechanism=""), SaslHandshakeResponse, timeout_s)
    except ClientError:
        return []
    finally:
        await connection.close()
    return list(answer.mechanisms) if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else []


async def _timed(look: AddressLook, what: str, doing: Awaitable[Result], timeout_s: float) -> Result:
    began_s = asyncio.get_running_loop().time()
    async with asyncio.timeout(timeout_s):
        found = await doing
    look.steps.append(f"{what} ({(asyncio.get_running_loop().time() - began_s) * 1000:.1f} ms)")
    return found


async def _speaks_tls(address: Address, timeout_s: float) -> bool:
    """Whether a handshake begins: one that the server refuses, for want of our certificate, is one too."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(*address, ssl=context)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _speaks_http(address: Address, timeout_s: float) -> bool:
    with suppress(OSError, TimeoutError):
        return (await _head_of_page(address, timeout_s)).startswith(b"HTTP/")
    return False


async def _head_of_page(address: Address, timeout_s: float, tls: ssl.SSLContext | None = None) -> bytes:
    """The first bytes of what a web server says. Raises OSError and TimeoutError."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(*address, ssl=tls)
        try:
            writer.write(f"HEAD /health/live HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            return await reader.read(RESPONSE_BYTES_MAX)
        finally:
            writer.close()


async def clock_at(
    admin: Address, tls: ssl.SSLContext | None = None, timeout_s: float = WITHIN_S
) -> tuple[int, int] | None:
    """How many milliseconds the clock of a broker is ahead of ours, and how exactly that is known: by the date in an
    answer of its admin listener, half a round trip ago. None where none answers."""
    began_ms = time() * 1000
    try:
        head = await _head_of_page(admin, timeout_s, tls)
        ended_ms = time() * 1000
        line = next(each for each in head.split(b"\r\n") if each.lower().startswith(b"date:"))
        there_ms = parsedate_to_datetime(line.partition(b":")[2].decode().strip()).timestamp() * 1000
    except (OSError, TimeoutError, StopIteration, ValueError):
        return None
    ahead_ms = there_ms + DATE_STEP_MS / 2 - (began_ms + ended_ms) / 2
    return round(ahead_ms), round(DATE_STEP_MS / 2 + (ended_ms - began_ms) / 2)
