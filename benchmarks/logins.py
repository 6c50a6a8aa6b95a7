"""How many logins by SCRAM a broker takes, and the longest step of its loop during them: `python -m benchmarks logins`.

The client has hashed its password before: the iterations are no work of a broker's, which keeps two keys. Each login is
a connection of its own with a handshake and two messages.
"""

import asyncio
import base64
import secrets
import tempfile
import threading
from pathlib import Path

from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.login_times import KNOWN, Login, create_user
from benchmarks.raw_client import RawClient
from benchmarks.steps import QUIET, Steps
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.security.scram_credential import SALT_BYTES, ScramHash

SCRAM = ScramHash.SHA_256
SALT, SALTED_PASSWORD = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(32)
LOGINS = 2_000
CLIENTS = 4
"""Threads that log in one after the other."""
ROUNDS = 3
LONGEST_STEP_MS = 5
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": SCRAM.mechanism,
}


def figures() -> list[Figure]:
    rounds = [asyncio.run(_round()) for _ in range(ROUNDS)]
    return [
        Figure(
            f"logins by {SCRAM.mechanism}, per second of the loop",
            NO_BASELINE,
            "/s",
            [(each, 1.0) for each, _ in rounds],
        ),
        Figure(
            f"longest loop step while {CLIENTS} clients log in by {SCRAM.mechanism}, processor",
            NO_BASELINE,
            "ms",
            [(steps.processor_ms, 1.0) for _, steps in rounds],
            at_most=LONGEST_STEP_MS,
        ),
    ]


async def _round() -> tuple[float, Steps]:
    """Logins per second of the loop's processor time, and its steps."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        broker = Broker(ServerConfig(SETTINGS), data_dir=Path(name) / "data", log=QUIET)
        await broker.start()
        plain, login = (endpoint.port for endpoint in broker.listeners.endpoints)
        await asyncio.to_thread(create_user, *(RawClient(plain), SALT, SALTED_PASSWORD))
        await asyncio.to_thread(_log_in, login, 200)
        steps = Steps()
        with steps.of_loop():
            threads = [threading.Thread(target=_log_in, args=(login, LOGINS // CLIENTS)) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        await broker.stop()
    return LOGINS / steps.total_s, steps


def _log_in(port: int, count: int) -> None:
    for _ in range(count):
        login = Login(port, SCRAM.mechanism)
        bare = f"n={KNOWN},r={secrets.token_hex(16)}"
        challenge, _ = login.ask(f"n,,{bare}".encode())
        nonce = challenge.decode().split(",")[0]
        without_proof = f"c=biws,{nonce}"
        proof = base64.b64encode(_proof(f"{bare},{challenge.decode()},{without_proof}")).decode()
        last, _ = login.ask(f"{without_proof},p={proof}".encode())
        assert last.startswith(b"v="), "the login has failed"
        login.close()


def _proof(message: str) -> bytes:
    client_key = SCRAM.hmac(SALTED_PASSWORD, b"Client Key")
    signature = SCRAM.hmac(SCRAM.digest(client_key), message.encode())
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
