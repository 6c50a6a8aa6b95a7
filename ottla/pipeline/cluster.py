"""What a job checks of the brokers before it begins, so that an error is one sentence."""

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.clients import NO_SECURITY, ClientSecurity
from ottla.pipeline.failures import PipelineError
from ottla.protocol.address import is_loopback
from ottla.security.tls_failure import tls_error_in, tls_failure

ANSWER_WITHIN_S = 10


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """`brokers` are the hosts that clients are sent to; `topics` gives the number of partitions of each."""

    brokers: Sequence[str]
    topics: Mapping[str, int]


def fetch_summary(bootstrap: str, security: ClientSecurity = NO_SECURITY) -> ClusterSummary:
    """Raises PipelineError when no broker answers."""
    return asyncio.run(_fetch_summary(bootstrap, security))


def check_topics(cluster: ClusterSummary, topics: Sequence[str], bootstrap: str) -> None:
    for topic in topics:
        if topic not in cluster.topics:
            raise PipelineError(f"there is no topic {topic} at {bootstrap}")


def check_reachable(cluster: ClusterSummary, master: str) -> None:
    """A broker that advertises 127.0.0.1 cannot be reached from another machine."""
    if master.startswith("local") or is_loopback(_host_of(master)):
        return
    loopback = [host for host in cluster.brokers if is_loopback(host)]
    if loopback:
        raise PipelineError(
            f"the broker advertises {loopback[0]}, which executors of {master} cannot reach: "
            "start it with --advertise HOST:PORT"
        )


def check_path(path: str, master: str, *, is_shared: bool) -> None:
    """A table on this machine's disk is out of reach for executors elsewhere, who would each write to their own."""
    if not master.startswith("local") and not is_shared and ("://" not in path or path.startswith("file:")):
        raise PipelineError(
            f"{path} is a path of this machine, which executors of {master} do not see: give one of a shared file "
            "system, or --shared-path if this one is mounted everywhere"
        )


async def _fetch_summary(bootstrap: str, security: ClientSecurity) -> ClusterSummary:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.errors import KafkaError

    client: Any = AIOKafkaClient(bootstrap_servers=bootstrap, client_id="ottla-pipeline", **security.of_python())
    with _heard() as errors:
        try:
            await asyncio.wait_for(client.bootstrap(), ANSWER_WITHIN_S)
            metadata = await asyncio.wait_for(client.fetch_all_metadata(), ANSWER_WITHIN_S)
            topics = {name: len(metadata.partitions_for_topic(name) or ()) for name in metadata.topics()}
            return ClusterSummary([broker.host for broker in metadata.brokers()], topics)
        except (KafkaError, OSError, TimeoutError, ValueError) as error:
            raise PipelineError(_why_none_answers(bootstrap, [*errors, error])) from error
        finally:
            await client.close()


def _why_none_answers(bootstrap: str, errors: Sequence[BaseException]) -> str:
    from aiokafka.errors import SaslAuthenticationFailed, UnsupportedSaslMechanismError

    for error in errors:
        if isinstance(error, (SaslAuthenticationFailed, UnsupportedSaslMechanismError)):
            return f"the brokers at {bootstrap} refuse the login: {str(error).rpartition(': ')[2]}"
        refused = tls_error_in(error)
        if refused is not None:
            return f"no TLS with {bootstrap}: {tls_failure(refused)}"
    return f"no broker answers at {bootstrap}"


@contextmanager
def _heard() -> Generator[list[BaseException]]:
    """What the client logs in place of raising it: why it cannot connect. It is not logged then."""
    errors: list[BaseException] = []
    log, handler = logging.getLogger("aiokafka"), _Hearing(errors)
    log.addHandler(handler)
    log.propagate = False
    try:
        yield errors
    finally:
        log.removeHandler(handler)
        log.propagate = True
        # What it would say later, jobs say themselves.
        log.setLevel(logging.CRITICAL)


class _Hearing(logging.Handler):
    def __init__(self, errors: list[BaseException]) -> None:
        super().__init__(logging.WARNING)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        self._errors += [each for each in arguments if isinstance(each, BaseException)]


def _host_of(master: str) -> str:
    return master.partition("://")[2].rpartition(":")[0].strip("[]")
