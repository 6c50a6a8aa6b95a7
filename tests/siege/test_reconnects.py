"""SEC31: a thousand clients with TLS come back at once, while a group of fifty lives on."""

import asyncio
import ssl
import threading
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.sasl_world import HANDSHAKE
from tests.cluster_processes import wait_for
from tests.siege.broker import SiegedBroker
from tests.siege.limited import LONGEST_STEP
from tests.siege.wire import Address, Wire, address_of

MEMORY_MIB = 512
MEMBERS, CLIENTS = 50, 1_000
GROUP = "reconnects"
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_S = 0.5
WITHIN_S = 60
# Of processor time, so that it says the same on a machine that has more to do.
STEP_MS_MAX = 200
REBALANCES = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
NONE = -1


class Member(threading.Thread):
    """Joins whenever it is asked to, and sends heartbeats."""

    def __init__(self, address: Address, stopping: threading.Event) -> None:
        super().__init__()
        self.generation = NONE
        self.beats = 0
        self.refusals: list[int] = []
        self._address = address
        self._stopping = stopping
        self._member_id = ""

    def run(self) -> None:
        with Wire(self._address, timeout_s=WITHIN_S) as wire:
            wire.log_in()
            while not self._stopping.is_set():
                self.generation = self._join(wire)
                if self.generation == NONE:
                    self._stopping.wait(HEARTBEAT_S)
                else:
                    self._beat(wire)

    def _join(self, wire: Wire) -> int:
        # So that there is a coordinator.
        wire.call(FindCoordinatorRequest(key=GROUP), 2)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        answer = wire.call(request, 3)
        self._member_id = answer.member_id
        if answer.error_code:
            return NONE
        sync = SyncGroupRequest(
            group_id=GROUP, generation_id=answer.generation_id, member_id=self._member_id, assignments=[]
        )
        return NONE if wire.call(sync, 2).error_code else int(answer.generation_id)

    def _beat(self, wire: Wire) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            beat = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self._member_id)
            error = wire.call(beat, 3).error_code
            if error in REBALANCES:
                return
            self.beats += 1
            if error:
                self.refusals.append(error)


async def come_at_once(address: Address, ca: str) -> None:
    """Each shakes hands and is answered once; then all go."""
    context = ssl.create_default_context(cadata=ca)

    async def come() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(*address, ssl=context, ssl_handshake_timeout=WITHIN_S)
        writer.write(HANDSHAKE)
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert await reader.readexactly(size)
        return writer

    async with asyncio.timeout(WITHIN_S):
        for writer in await asyncio.gather(*(come() for _ in range(CLIENTS))):
            writer.transport.abort()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_thousand_handshakes_cost_no_member_its_session(tmp_path: Path) -> None:
    stopping = threading.Event()
    with SiegedBroker(tmp_path / "broker", memory_mib=MEMORY_MIB) as broker:
        members = [Member(address_of(broker.login), stopping) for _ in range(MEMBERS)]
        try:
            for member in members:
                member.start()

            def have_met() -> bool:
                """All are in one generation: no member is left that could begin another."""
                generations = {each.generation for each in members}
                return len(generations) == 1 and NONE not in generations and broker.counts()["members"] == MEMBERS

            wait_for(have_met, WITHIN_S, "the members have not met", every_s=HEARTBEAT_S)
            generation, beats = members[0].generation, [each.beats for each in members]
            broker.counts()
            for _ in range(2):
                asyncio.run(come_at_once(address_of(broker.tls), (tmp_path / "broker" / "ca.pem").read_text()))
            longest_ms = broker.counts()[LONGEST_STEP]
            wait_for(lambda: all(each.beats > n for each, n in zip(members, beats, strict=True)), WITHIN_S, "no beats")
        finally:
            stopping.set()
            for member in members:
                member.join()
        assert [each.generation for each in members] == [generation] * MEMBERS
        assert [each.refusals for each in members] == [[]] * MEMBERS
        assert not any(line.get("event") == "SessionExpired" for line in broker.log())
        assert longest_ms <= STEP_MS_MAX, f"a step of the loop took {longest_ms} ms"
        assert sum("Traceback" in str(line) for line in broker.log()) == 0
