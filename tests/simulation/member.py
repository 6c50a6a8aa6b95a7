"""A member of a consumer group, badly behaved on purpose: it stalls, leaves, vanishes, comes back, repeats itself.

While the world is calm it behaves as client libraries do: it joins, syncs, heartbeats, and joins again when asked to.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_assignment
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.fakes.consumer_protocol import build_assignment, build_subscription
from tests.simulation.commits import Commits
from tests.simulation.judge import Sent
from tests.simulation.wire import LOST

if TYPE_CHECKING:
    from tests.simulation.world import World

NONE = ErrorCode.NONE
RETRY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
MOVED = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
NEW_IDENTITY = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
ORDINARY = RETRY | REJOIN | NEW_IDENTITY | {NONE}

PROMPT_MS = 2_000
"""What does not wait for other members is answered within this, disk included."""


@dataclass
class Habits:
    """Who a member is and what its client library can do."""

    group_id: str
    client_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    versions: dict[str, int]
    restlessness: float
    """How likely it is to do something foolish instead of its next heartbeat."""

    @classmethod
    def draw(cls, rng: random.Random, group_id: str, number: int) -> "Habits":
        is_static = rng.random() < 0.3
        oldest = {"join": 5, "sync": 3, "heartbeat": 3, "leave": 3} if is_static else {}
        newest = {"join": 9, "sync": 5, "heartbeat": 4, "leave": 5, "find": 6}
        return cls(
            group_id=group_id,
            client_id=f"client-{group_id}-{number}",
            instance_id=f"inst-{group_id}-{number}" if is_static else None,
            session_timeout_ms=rng.choice([6_000, 6_000, 10_000]),
            rebalance_timeout_ms=rng.choice([5_000, 10_000, 20_000]),
            versions={api: rng.choice([high, rng.randint(oldest.get(api, 0), high)]) for api, high in newest.items()},
            restlessness=rng.choice([0.02, 0.1, 0.3]),
        )

    @property
    def group_rebalance_timeout_ms(self) -> int:
        """JoinGroup v0 knows no other than the session timeout."""
        return self.rebalance_timeout_ms if self.versions["join"] else self.session_timeout_ms


class IdentityLostError(Exception):
    """The broker does not know this member (any more): it has to come back as somebody new."""


@dataclass
class Member:
    world: "World"
    rng: random.Random
    habits: Habits
    member_id: str = ""
    generation: int = -1
    subscription_epoch: int = 0
    in_step: bool = False
    """Has its assignment and got no other answer since."""
    former_ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.commits = Commits(self)

    async def live(self) -> None:
        while not self.world.is_over:
            try:
                self.wire = await self.world.connect(self.habits.client_id)
                try:
                    await self._attend()
                finally:
                    self.in_step = False
                    self.wire.close()
            except LOST:
                await self._sleep(20, 500)
            except IdentityLostError:
                self._forget_identity()
                await self._sleep(1, 200)

    def _forget_identity(self) -> None:
        if self.member_id:
            self.former_ids.append(self.member_id)
        self.member_id, self.generation = "", -1

    async def _attend(self) -> None:
        await self._find_coordinator()
        while not self.world.is_over:
            self.in_step = False
            if await self._join_and_sync():
                self.in_step = True
                await self._consume()

    async def _find_coordinator(self) -> None:
        version = self.habits.versions["find"]
        request = FindCoordinatorRequest(key=self.habits.group_id, coordinator_keys=[self.habits.group_id])
        while True:
            response = await self.wire.call(request, version, within_ms=PROMPT_MS)
            found = response.coordinators[0] if version >= 4 else response
            if self._judged("find coordinator", found.error_code, RETRY | {NONE}) is NONE:
                self.wire = await self.world.coordinator(found, self.wire, self.habits.client_id)
                return
            await self._sleep(50, 300)

    # Joining.

    async def _join_and_sync(self) -> bool:
        joined = await self._join()
        if joined is None:
            await self._sleep(10, 100)
            return False
        if self._feels_foolish():
            # A slow assignor, or one that dies before it has assigned, or one that never syncs and yet heartbeats.
            await self._sleep(10, self.habits.rebalance_timeout_ms)
            if self.rng.random() < 0.3:
                await self._heartbeat_until_refused()
                return False
        return await self._sync(joined)

    async def _join(self) -> Any | None:
        """The successful answer, or None when it is to be tried again."""
        habits, version = self.habits, self.habits.versions["join"]
        epoch = f"{habits.client_id}/{self.subscription_epoch}".encode()
        metadata = build_subscription(ConsumerProtocolSubscription(topics=self.world.subscribed, user_data=epoch), 0)
        request = JoinGroupRequest(
            group_id=habits.group_id,
            session_timeout_ms=habits.session_timeout_ms,
            rebalance_timeout_ms=habits.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=habits.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self._protocol_names()],
            reason="simulated",
        )
        if self._feels_foolish():
            hang_up_after_s = self.rng.choice([0.01, 1, self.habits.rebalance_timeout_ms / 1000])
            asyncio.get_running_loop().call_later(hang_up_after_s, self.wire.close)
        sent = self._sending()
        response = await self.wire.call(request, version, within_ms=self.world.join_bound_ms)
        error = self._judged("join", response.error_code, ORDINARY | {ErrorCode.MEMBER_ID_REQUIRED})
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            if version < 4 or habits.instance_id is not None:
                self.world.judge.violated("§7.1.2", f"MEMBER_ID_REQUIRED for join v{version} of {habits}")
            self.member_id = response.member_id
        elif error in NEW_IDENTITY:
            raise IdentityLostError
        if error is not NONE:
            self._maybe_look_elsewhere(error)
            return None
        self.member_id, self.generation = response.member_id, response.generation_id
        self.world.judge.joined(habits.group_id, sent, response)
        return response

    def _protocol_names(self) -> list[str]:
        """All know "range"; most know more, in an order of their own."""
        known = ["range", "roundrobin", "sticky"]
        return self.rng.sample(known[:2], 2) if self.rng.random() < 0.02 else known

    async def _sync(self, joined: Any) -> bool:
        habits = self.habits
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            assignments = self._assign(joined)
        request = SyncGroupRequest(
            group_id=habits.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=habits.instance_id,
            protocol_type=joined.protocol_type or PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        sent = self._sending()
        response = await self.wire.call(request, habits.versions["sync"], within_ms=self.world.join_bound_ms)
        error = self._judged("sync", response.error_code, ORDINARY)
        if error is NONE:
            user_data = parse_assignment(response.assignment).user_data
            assigned = bytes(user_data).decode() if user_data else None
            self.world.judge.synced(habits.group_id, sent, self.generation, self.member_id, assigned)
        return self._goes_on_after(error)

    def _assign(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        """Each member learns who assigned it and who it is, so that answers can be compared (I-12)."""
        nonce = f"{self.member_id}@{self.rng.getrandbits(32):08x}"
        members = [member for member in joined.members if not (self._feels_foolish() and self.rng.random() < 0.2)]
        return [
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=build_assignment(
                    ConsumerProtocolAssignment(
                        user_data=f"{nonce}/{self.world.static_id_of(member.member_id)}".encode()
                    ),
                    0,
                ),
            )
            for member in members
        ]

    # Consuming.

    async def _consume(self) -> None:
        """Until it has to join again."""
        while not self.world.is_over:
            await self._sleep(200, self.habits.session_timeout_ms // 3)
            if self._feels_foolish():
                if not await self._be_foolish():
                    return
            elif self.rng.random() < 0.4:
                if not self._goes_on_after(await self.commits.commit()):
                    return
            elif self.rng.random() < 0.3:
                await self.commits.fetch()
            if not self._goes_on_after(await self.heartbeat(self.member_id, self.generation)):
                return

    async def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.habits.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.habits.instance_id,
        )
        sent = self.world.judge.sending(self.habits.group_id, self.wire.incarnation, member_id)
        response = await self.wire.call(request, self.habits.versions["heartbeat"], within_ms=PROMPT_MS)
        error = self._judged("heartbeat", response.error_code, ORDINARY)
        if error is NONE:
            self.world.judge.accepted("heartbeat", self.habits.group_id, sent, generation, member_id)
        return error

    async def _heartbeat_until_refused(self) -> None:
        """Never syncs (T-7): only the pending-sync timer puts an end to it."""
        while self._goes_on_after(await self.heartbeat(self.member_id, self.generation)) and not self.world.is_calm:
            await self._sleep(500, self.habits.session_timeout_ms // 3)

    async def _be_foolish(self) -> bool:
        """Whether to go on consuming afterwards."""
        match self.rng.randrange(8):
            case 0:
                await self._sleep(100, 2 * self.habits.session_timeout_ms)
            case 1:
                await self._leave()
                return False
            case 2:
                self.wire.close()
                if self.rng.random() < 0.5:
                    self._forget_identity()
                await self._sleep(10, 2_000)
                raise ConnectionResetError("hung up")
            case 3:
                self.subscription_epoch += 1
                return False
            case 4:
                # Joins again though nothing has changed, as if the answer had been lost (G11).
                return False
            case 5:
                await self.commits.commit(generation=self.generation - 1)
            case 6 if self.former_ids:
                await self.heartbeat(self.rng.choice(self.former_ids), self.generation)
            case _:
                await self.heartbeat(self.member_id, self.generation - 1)
        return True

    async def _leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.habits.instance_id)
        request = LeaveGroupRequest(group_id=self.habits.group_id, member_id=self.member_id, members=[identity])
        sent = self._sending()
        response = await self.wire.call(request, self.habits.versions["leave"], within_ms=PROMPT_MS)
        error = self._judged("leave", response.error_code, ORDINARY)
        if error is NONE and response.members:
            error = self._judged("leave", response.members[0].error_code, ORDINARY)
        if error is NONE and sent.member_was_fenced:
            self.world.judge.violated("I-14", f"{self.member_id} left after it was fenced")
        self._forget_identity()

    # Little things.

    def _sending(self) -> Sent:
        return self.world.judge.sending(self.habits.group_id, self.wire.incarnation, self.member_id)

    def _judged(self, what: str, code: int, expected: set[ErrorCode]) -> ErrorCode:
        error = ErrorCode(code)
        if error not in expected:
            self.world.judge.violated("answers", f"{what} of {self.habits.client_id} was answered {error.name}")
        return error

    def _goes_on_after(self, error: ErrorCode) -> bool:
        if error in NEW_IDENTITY:
            raise IdentityLostError
        if error in REJOIN or error in RETRY:
            self.in_step = False
        self._maybe_look_elsewhere(error)
        return error is NONE

    def _maybe_look_elsewhere(self, error: ErrorCode) -> None:
        if error in MOVED and self.world.coordinators_move:
            raise ConnectionResetError("the coordinator has moved")

    def _feels_foolish(self) -> bool:
        return not self.world.is_calm and self.rng.random() < self.habits.restlessness

    async def _sleep(self, at_least_ms: int, at_most_ms: int) -> None:
        await self.world.sleep_ms(self.rng.randint(at_least_ms, at_most_ms))
