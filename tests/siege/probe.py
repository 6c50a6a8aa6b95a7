"""`python -m tests.siege.probe --login ADDRESS --directory D`: the client that is measured, until SIGTERM.

It logs in, so what is measured is what a client has of a broker that knows it.

It sends a record every `INTERVAL_S`, whether or not the one before was acknowledged, as many users would: a broker that
stands still for a second has made a hundred of them wait. It speaks to the broker without a client library, which would
wait for company for a record and retry in silence. In a thread of its own it is the one member of a group and sends
heartbeats. What happened to records goes into a history, what happened to the member into a file: a line for each
answer that is not what a member hopes for.
"""

import argparse
import itertools
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.records.record import Record, build_batch
from tests.histories.events import Acknowledged, Sent
from tests.histories.files import HistoryFile, now_us
from tests.siege.wire import Wire, address_of
from tests.storm.clients.client import to_payload
from tests.storm.settings import PARTITIONS, TOPIC

NAME = "probe"
GROUP = "siege-probe"
INTERVAL_S = 0.01
HEARTBEAT_S = 0.5
SESSION_TIMEOUT_MS = 6000
ANSWER_WITHIN_S = 60
RETRY_S = 0.2


class Probe:
    def __init__(self, login: str, directory: Path) -> None:
        self._address = address_of(login)
        self._directory = directory
        self._stopping = threading.Event()

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._stopping.set())
        member = threading.Thread(target=self._be_a_member)
        member.start()
        with HistoryFile(self._directory / f"history-{NAME}.jsonl") as history:
            life = 0
            while not self._stopping.is_set():
                try:
                    self._produce(history, f"{NAME}.{life}")
                except OSError:
                    # What is under way stays in doubt. A record is sent once.
                    self._stopping.wait(RETRY_S)
                life += 1
        member.join()

    def _produce(self, history: HistoryFile, name: str) -> None:
        """Until the end, or until the connection ends, which raises OSError."""
        with Wire(self._address, NAME, timeout_s=ANSWER_WITHIN_S) as wire:
            wire.log_in()
            failures: list[OSError] = []
            values: list[str] = []
            receiver = threading.Thread(target=_receive, args=(wire, history, values, failures))
            number, started = 0, time.monotonic()
            while not self._stopping.is_set() and not failures:
                values.append(f"{name}/{number}")
                wire.send(self._request(history, name, number), 9)
                number += 1
                if number == 1:
                    receiver.start()
                time.sleep(max(0.0, started + number * INTERVAL_S - time.monotonic()))
            if not failures:
                wire.send(ApiVersionsRequest(), 0)
            receiver.join()
            if failures and not self._stopping.is_set():
                raise failures[0]

    def _request(self, history: HistoryFile, name: str, number: int) -> ProduceRequest:
        partition, value = number % PARTITIONS, f"{name}/{number}"
        records = build_batch([Record(offset=0, timestamp=int(time.time() * 1000), key=None, value=to_payload(value))])
        history.write(Sent(now_us(), name, TOPIC, partition, number, value, idempotent=False))
        data = PartitionProduceData(index=partition, records=memoryview(records))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        return ProduceRequest(acks=-1, timeout_ms=ANSWER_WITHIN_S * 1000, topic_data=[topic])

    # The member.

    def _be_a_member(self) -> None:
        with (self._directory / "sessions.txt").open("w", buffering=1) as reports:
            while not self._stopping.is_set():
                try:
                    with Wire(self._address, NAME, timeout_s=ANSWER_WITHIN_S) as wire:
                        wire.log_in()
                        self._keep_alive(wire, lambda what: reports.write(f"{now_us()} {what}\n"))
                except OSError as error:
                    reports.write(f"{now_us()} connection lost: {error}\n")
                    self._stopping.wait(RETRY_S)

    def _keep_alive(self, wire: Wire, report: Callable[[str], object]) -> None:
        joined = _join(wire)
        while not self._stopping.wait(HEARTBEAT_S):
            beat = HeartbeatRequest(group_id=GROUP, generation_id=joined[0], member_id=joined[1])
            error = wire.call(beat, 3).error_code
            if error:
                report(f"heartbeat of {joined} answered {error}")
                joined = _join(wire)


def _join(wire: Wire) -> tuple[int, str]:
    """The group coordinator may be on its way still."""
    while True:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        answer = wire.call(request, 3)
        if answer.error_code == 0:
            own = [SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")]
            sync = SyncGroupRequest(
                group_id=GROUP, generation_id=answer.generation_id, member_id=answer.member_id, assignments=own
            )
            if wire.call(sync, 2).error_code == 0:
                return answer.generation_id, answer.member_id
        time.sleep(RETRY_S)


def _receive(wire: Wire, history: HistoryFile, values: list[str], failures: list[OSError]) -> None:
    """Answers come in the order of the requests; that to another request than Produce is the last."""
    try:
        for number in itertools.count():
            response = wire.receive()
            if not isinstance(response, ProduceResponse):
                return
            answer = response.responses[0].partition_responses[0]
            if answer.error_code == 0:
                history.write(Acknowledged(now_us(), values[number], answer.base_offset))
    except OSError as error:
        failures.append(error)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.siege.probe", description=__doc__)
    parser.add_argument("--login", required=True)
    parser.add_argument("--directory", required=True, type=Path)
    options = parser.parse_args()
    Probe(options.login, options.directory).run()


if __name__ == "__main__":
    main()
