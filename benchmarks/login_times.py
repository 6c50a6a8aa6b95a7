"""Whether the time of a failed login says if the user exists: `python -m benchmarks login_times`.

Failures are answered without their delay here, which would hide what they take. The two kinds take turns at random on
connections of their own; the two-sample test of Kolmogorov and Smirnov says how likely times as different as these are
where nothing differs.
"""

import base64
import math
import random
import secrets
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.raw_client import RawClient
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.scram_credential import SALT_BYTES

LOGINS = 10_000
"""Of each kind."""
PROOF_BYTES = 32
# As long as each other: the lengths of names are no secret.
KNOWN, UNKNOWN = "alice", "carol"


class Login:
    """One that fails, and how long its last answer took."""

    def __init__(self, port: int, mechanism: str) -> None:
        self._client = RawClient(port)
        self._client.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)

    def ask(self, token: bytes) -> tuple[bytes, float]:
        began_ns = time.perf_counter_ns()
        answer = self._client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 1)
        took_us = (time.perf_counter_ns() - began_ns) / 1000
        assert isinstance(answer, SaslAuthenticateResponse)
        return bytes(answer.auth_bytes), took_us

    def close(self) -> None:
        self._client.close()


def figures() -> list[Figure]:
    processes.pin_client()
    with _broker() as (plain_port, login_port):
        create_user(RawClient(plain_port), secrets.token_bytes(SALT_BYTES), secrets.token_bytes(PROOF_BYTES))
        found = []
        for name, times in (("PLAIN", _by_plain), ("SCRAM-SHA-256", _by_scram)):
            known, unknown = _times(lambda user, times=times: times(login_port, user))  # type: ignore[misc]
            for step, (first, second) in enumerate(
                zip(zip(*known, strict=True), zip(*unknown, strict=True), strict=True)
            ):
                title = f"{name}, answer {step + 1}: wrong password and unknown user, Kolmogorov-Smirnov p"
                found.append(Figure(title, NO_BASELINE, "", [(probability(first, second), 1.0)], at_least=0.01))
        return found


def _times(take: Callable[[str], Sequence[float]]) -> tuple[list[Sequence[float]], list[Sequence[float]]]:
    """For the known user and the unknown one, after a warm-up; the order is drawn."""
    order = [KNOWN, UNKNOWN] * LOGINS
    random.shuffle(order)
    for user in order[:200]:
        take(user)
    taken: dict[str, list[Sequence[float]]] = {KNOWN: [], UNKNOWN: []}
    for user in order:
        taken[user].append(take(user))
    return taken[KNOWN], taken[UNKNOWN]


def _by_plain(port: int, user: str) -> Sequence[float]:
    login = Login(port, "PLAIN")
    _, took_us = login.ask(f"\0{user}\0not the password".encode())
    login.close()
    return (took_us,)


def _by_scram(port: int, user: str) -> Sequence[float]:
    login = Login(port, "SCRAM-SHA-256")
    challenge, first_us = login.ask(f"n,,n={user},r={secrets.token_hex(16)}".encode())
    nonce = challenge.decode().split(",")[0]
    proof = base64.b64encode(secrets.token_bytes(PROOF_BYTES)).decode()
    _, second_us = login.ask(f"c=biws,{nonce},p={proof}".encode())
    login.close()
    return first_us, second_us


def probability(first: Sequence[float], second: Sequence[float]) -> float:
    """That two samples of one distribution differ as much as these, by the asymptotic formula."""
    first, second = sorted(first), sorted(second)
    distance = max(
        abs(bisect_right(first, value) / len(first) - bisect_right(second, value) / len(second))
        for value in (*first, *second)
    )
    scale = math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    argument = (scale + 0.12 + 0.11 / scale) * distance
    terms = (2 * (-1) ** (n - 1) * math.exp(-2 * n**2 * argument**2) for n in range(1, 101))
    return min(max(sum(terms), 0.0), 1.0) if argument > 0.2 else 1.0


@contextmanager
def _broker() -> Iterator[tuple[int, int]]:
    """The port of a listener without a login, and of one with."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        users = Path(name) / "users"
        users.write_text(f"{KNOWN}:the password\n")
        users.chmod(0o600)
        plain = processes.free_port(2)
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{plain + 1}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.login.plain.users.file": str(users),
            "connection.failed.authentication.delay.ms": "0",
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [
            each for each in processes.broker_command(f"{name}/data", *words) if each not in ("--listen", "127.0.0.1:0")
        ]
        with processes.running(command):
            yield plain, plain + 1


def create_user(client: RawClient, salt: bytes, salted_password: bytes) -> None:
    """With the iterations that an unknown user seems to have."""
    wanted = ScramCredentialUpsertion(
        name=KNOWN,
        mechanism=1,
        iterations=4096,
        salt=salt,
        salted_password=salted_password,
    )
    request = AlterUserScramCredentialsRequest(upsertions=[wanted])
    answer = client.call(request, AlterUserScramCredentialsResponse, 0)
    assert isinstance(answer, AlterUserScramCredentialsResponse)
    assert not answer.results[0].error_code
