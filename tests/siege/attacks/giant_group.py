"""A group of a thousand members that rebalances again and again, with more to say each time."""

from contextlib import suppress
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.siege.attacks.attack import Attack
from tests.siege.wire import Wire

GROUP = "siege-giant"
MEMBERS = 1_000
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 3_000
# Bytes of subscription and of assignment of each member. Two megabytes are more than a record of
# `__consumer_offsets` may have; twenty are what the leader is sent all the same.
SIZES = (100, 400, 2_000, 20_000)


class GiantGroup(Attack):
    name = "giant-group"

    def run(self) -> None:
        self._ids: dict[Wire, str] = dict.fromkeys(self.connections(MEMBERS), "")
        self._ask_all({wire: self._join(wire, 0) for wire in self._ids})
        sizes = [size for size in SIZES for _ in range(2)]
        for _ in self.target.until_over():
            size = sizes.pop(0) if sizes else self.target.chance.choice(SIZES)
            self._rebalance(size)

    def clean_up(self) -> None:
        for wire in self._ids:
            wire.reset()
        with self.connect() as wire:
            members = [MemberIdentity(member_id=member_id) for member_id in self._ids.values() if member_id]
            wire.call(LeaveGroupRequest(group_id=GROUP, members=members), 3)
            wire.call(DeleteGroupsRequest(groups_names=[GROUP]), 1)

    def _rebalance(self, size: int) -> None:
        joined = self._ask_all({wire: self._join(wire, size) for wire in self._ids})
        generation = max((answer.generation_id for answer in joined.values()), default=-1)
        members = {wire: answer for wire, answer in joined.items() if answer.generation_id == generation}
        requests: dict[Wire, Any] = {}
        for wire, answer in members.items():
            assigned = [
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=self.target.chance.randbytes(size))
                for each in answer.members
            ]
            requests[wire] = SyncGroupRequest(
                group_id=GROUP, generation_id=generation, member_id=self._ids[wire], assignments=assigned
            )
        synced = self._ask_all(requests)
        self.done["rebalances"] += 1
        for answer in synced.values():
            self.done["members synced" if answer.error_code == 0 else f"sync error {answer.error_code}"] += 1

    def _join(self, wire: Wire, size: int) -> JoinGroupRequest:
        metadata = self.target.chance.randbytes(size)
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._ids[wire],
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    def _ask_all(self, requests: dict[Wire, Any]) -> dict[Wire, Any]:
        """Answers by connection; without those that are lost, which leave the game."""
        for wire, request in requests.items():
            with suppress(OSError):
                wire.send(request, 5 if isinstance(request, JoinGroupRequest) else 3)
        answers: dict[Wire, Any] = {}
        for wire in requests:
            try:
                answer = answers[wire] = wire.receive()
            except OSError:
                self.done["members lost"] += 1
                self._ids.pop(wire, None)
                wire.reset()
                continue
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._ids[wire] = answer.member_id
            elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._ids[wire] = ""
        return answers
