"""What has to be seen when faults have stopped: progress first (I-20), then nothing lost and nothing left over."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import NO_LEADER, BrokerState
from ottla.coordinator.classic.states import STABLE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.records.record import Record
from tests.histories.checker import check
from tests.histories.events import FinalLog
from tests.simulation.calm import POLL_MS, wrong_after
from tests.simulation.cluster.keyed import KEYED
from tests.simulation.cluster.plan import PRODUCER_EXPIRATION_MS
from tests.simulation.cluster.released import held_too_much
from tests.simulation.cluster.settings_probe import SettingsProbe
from tests.simulation.cluster.standalone import GROUP
from tests.simulation.cluster.transaction_agreement import hanging
from tests.simulation.cluster.transaction_rest import TransactionRest
from tests.simulation.commits import fetch_request, metadata_of, read_offsets
from tests.simulation.invariants import hosted_partitions, timers_of_groups
from tests.simulation.member import PROMPT_MS
from tests.simulation.replay import differences, live_state, replayed
from tests.simulation.traffic import records_of

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

# After a start: registration behind an expiring session, the lag of a follower, back-offs, connection attempts that a
# cut held up.
CATCH_UP_MS = 45_000
# Many fetches of a follower.
COPYING_MS = 2_000
WRITING_MS = 30_000
REACTION_MS = 8_000
# The longest timeout of a transaction, the interval of the coordinators' checks, markers that are sent again.
TRANSACTION_MS = 20_000
# Much longer than it takes to replicate a batch, and to answer who sent it.
FORWARDING_MS = 5_000
# Longer than a connection takes to be lost on both sides, and a fetch of a follower to be answered.
RELEASE_MS = 10_000
# Some rounds over few and small logs, also where a log is appended to all the time.
COMPACTION_MS = 10_000
OFFSETS_RETENTION_MS = 60_000
EXPIRY_MS = 8_000


class Rest:
    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._judge = world.judge

    async def come(self) -> None:
        """Every broker is active, every partition is led and all its replicas are in sync; topics that a client asked
        for are there."""
        await self._wait("I-20", self._not_created, CATCH_UP_MS)
        await self._wait("I-28", self._leaderless, CATCH_UP_MS)
        wrong = await wrong_after(CATCH_UP_MS, self._not_in_sync)
        if wrong and not await self._is_copying(wrong):
            self._calm_was_too_short("I-20", wrong, CATCH_UP_MS)
        await self._wait("I-25", self._other_users, REACTION_MS)
        await self._wait("I-25", self._other_quotas, REACTION_MS)
        if self._world.settings is not None:
            await self._wait("I-39", self._disobeyed, REACTION_MS)
        if self._world.principals is not None:
            await self._wait("I-25", self._world.principals.still_wrong, REACTION_MS)
            await self._world.principals.probe()

    async def finish_writing(self) -> None:
        """Every batch is acknowledged in the end, and then all replicas are in sync, and the same (R12)."""
        await self._wait("I-20", self._unacknowledged, WRITING_MS)
        await self._wait("I-20", self._not_in_sync, CATCH_UP_MS)
        await self._wait("R12", self._unequal, CATCH_UP_MS)
        await self._see_compaction()

    async def _see_compaction(self) -> None:
        """It goes on where a disk has refused something: a round that is asked for begins, and comes to its end."""
        if not self._judge.counts["disk errors"]:
            return
        waiting = {node.host for node in self._world.nodes.values()}
        for node in self._world.nodes.values():
            assert node.running is not None, "all are up"
            node.running.context.run(node.broker.log_manager.clean_now, partial(waiting.discard, node.host))
        await self._wait("I-20", lambda: [f"{host} compacts nothing" for host in sorted(waiting)], COMPACTION_MS)

    async def judge_groups(self) -> None:
        await self._wait("I-20", self._unstable, self._group_bound_ms())
        for group_id in self._judge.groups:
            await self._read_offsets(group_id)

    async def judge_history(self) -> None:
        """What clients were answered, against what is stored."""
        world = self._world
        final = {partition: self._final_log(*partition) for partition in world.partitions}
        for violation in check(world.history, final):
            self._judge.violated("history", str(violation))
        if world.keyed_producer is not None:
            committed = world.inspector.committed_now((KEYED, 0))
            for key, wrong in world.keyed_producer.ledger.wrong(self.final_records(KEYED, 0)):
                if committed is None or key.encode() not in committed.came_back:
                    self._judge.violated("I-5", f"{KEYED}: {wrong}")

    async def finish_transactions(self) -> None:
        """Those that were left open are aborted by their coordinators (I-23)."""
        if self._world.plan.transacts:
            transactions = TransactionRest(self._world)
            await self._wait("I-20", self._transacting, WRITING_MS)
            await self._wait("I-23", transactions.incomplete, TRANSACTION_MS)
            if self._world.plan.expires_transactional_ids:
                await self._wait("expiry", transactions.unexpired, EXPIRY_MS)
            await transactions.judge()

    async def see_offsets_expire(self) -> None:
        """Where they do so soon enough. Those of a group with members stay."""
        if self._world.plan.expires_offsets:
            await asyncio.sleep(OFFSETS_RETENTION_MS / 1000)
            await self._wait("expiry", self._not_expired, EXPIRY_MS)

    async def see_producers_expire(self) -> None:
        """Where they do so soon enough: every replica forgets them when nothing is written any more."""
        if self._world.plan.expires_producers:
            await asyncio.sleep(PRODUCER_EXPIRATION_MS / 1000)
            await self._wait("expiry", self._known_producers, EXPIRY_MS)

    async def judge_deeds(self) -> None:
        """What principals have left behind (I-34)."""
        if self._world.principals is not None:
            await self._world.principals.judge_deeds()

    async def judge_settings(self) -> None:
        """Where they were altered in flight (I-39)."""
        if self._world.settings is not None:
            await SettingsProbe(self._world, self._world.settings).judge()

    async def clean_up(self) -> None:
        """I-17 once more; I-19: when everybody has gone, what was made for them has gone."""
        world = self._world
        for node in world.nodes.values():
            for hosted in hosted_partitions(node.broker):
                for difference in differences(live_state(hosted), replayed(node.broker, hosted.index)):
                    self._judge.violated("I-17", f"{node.host} against its own log: {difference}")
        await self._see_members_expire()
        # Brokers stay, and are producers too: what one forwards waits at another until its replicas have it.
        await self._wait("I-19", self._forwarding, FORWARDING_MS)
        await self._wait("I-19", lambda: held_too_much(world), RELEASE_MS)
        brokers = [node.broker for node in world.nodes.values()]
        await asyncio.gather(*(node.stop() for node in world.nodes.values()))
        for node in world.nodes.values():
            if node.left_open:
                self._judge.violated("I-19", f"{node.host} has stopped with {node.left_open} open files")
        for broker in brokers:
            if len(broker.runtime.wheel):
                self._judge.violated("I-19", f"{len(broker.runtime.wheel)} timers in a broker that has stopped")

    async def _see_members_expire(self) -> None:
        """In some worlds all that time passes, and brokers do what they do when nothing is asked of them."""
        world = self._world
        members = [member.habits for member in world.members]
        sessions_ms = max(habits.session_timeout_ms for habits in members)
        rebalance_ms = max(habits.group_rebalance_timeout_ms for habits in members)
        bound_ms = sessions_ms + 2 * rebalance_ms + PROMPT_MS
        await self._wait("I-19", self._left_by_members, bound_ms, rests_long=world.plan.rests_long)

    async def _wait(
        self, invariant: str, still_wrong: Callable[[], list[str]], at_most_ms: int, *, rests_long: bool = False
    ) -> None:
        if wrong := await wrong_after(at_most_ms, still_wrong, rests_long=rests_long):
            self._calm_was_too_short(invariant, wrong, at_most_ms)

    def _calm_was_too_short(self, invariant: str, wrong: list[str], waited_ms: int) -> None:
        self._judge.violated(invariant, f"after {waited_ms} ms of calm: {'; '.join(wrong)}")

    async def _is_copying(self, wrong: list[str]) -> bool:
        """Whether nothing is wrong but replicas that go on copying. On a slow link one may be no faster than producers
        write; it has to be in sync when they have stopped."""
        before = self._ends_out_of_sync()
        await asyncio.sleep(COPYING_MS / 1000)
        after = self._ends_out_of_sync()
        return len({replica[:2] for replica in before}) == len(wrong) and all(
            replica not in after or after[replica] > end for replica, end in before.items()
        )

    # What may still be wrong.

    def _not_in_sync(self) -> list[str]:
        world, image = self._world, self._world.truth.image
        wrong = [f"{node.host} is down" for node in world.nodes.values() if not node.is_up or node.is_busy]
        for node_id in world.nodes:
            broker = image.brokers.get(node_id)
            if broker is None or broker.state is not BrokerState.ACTIVE:
                wrong.append(f"broker {node_id} is {None if broker is None else broker.state}")
        if image.controller_id == NO_LEADER:
            wrong.append("there is no controller")
        wrong += [
            f"{node.host} has a failed log" for node in world.nodes.values() if node.is_up and node.has_failed_log
        ]
        for topic, index, state in image.partitions():
            if state.leader == NO_LEADER or set(state.isr) != set(state.replicas) or state.is_reassigning:
                wrong.append(f"{topic.name}-{index} is {state}")
        return wrong

    def _ends_out_of_sync(self) -> dict[tuple[str, int, int], int]:
        """The log ends of replicas that are not in sync, by topic, partition and broker."""
        nodes = self._world.nodes
        return {
            (topic.name, index, node_id): replica.log.log_end_offset
            for topic, index, state in self._world.truth.image.partitions()
            for node_id in set(state.replicas).difference(state.isr)
            if (replica := nodes[node_id].broker.replicas.find(topic.name, index)) is not None
        }

    def _other_users(self) -> list[str]:
        """Every broker has the credentials that were acknowledged (§80.4)."""
        users, nodes = self._world.users, self._world.nodes.values()
        return [f"{node.host}: {wrong}" for node in nodes for wrong in users.wrong(node.broker.image.scram_credentials)]

    def _other_quotas(self) -> list[str]:
        """Every broker has the quotas that were acknowledged (§65.1)."""
        quotas, nodes = self._world.quotas, self._world.nodes.values()
        return [f"{node.host}: {wrong}" for node in nodes for wrong in quotas.wrong(node.broker.image.client_quotas)]

    def _disobeyed(self) -> list[str]:
        """Settings that were acknowledged and are not committed, or committed and not in force."""
        world, obedience = self._world, self._world.inspector.obedience
        assert obedience is not None, "settings are altered"
        assert world.settings is not None, "settings are altered"
        wrong = [f"{node.host}: {each}" for node in world.nodes.values() for each in obedience.disobeyed(node.broker)]
        return world.settings.wrong() + obedience.kept_eligible() + wrong

    def _leaderless(self) -> list[str]:
        """Partitions that a replica could lead which has never lost anything, as far as its disk goes."""
        nodes = self._world.nodes
        return [
            f"{topic.name}-{index} has no leader, though {node_id} has lost nothing"
            for topic, index, state in self._world.truth.image.partitions()
            for node_id in state.replicas
            if state.leader == NO_LEADER and nodes[node_id].is_up and not nodes[node_id].has_lost_records
        ]

    def _not_created(self) -> list[str]:
        newcomer = self._world.newcomer
        return [f"{newcomer.name} waits for {sorted(newcomer.missing)}"] if newcomer and newcomer.missing else []

    def _unacknowledged(self) -> list[str]:
        return [
            f"{producer.name} still has {[batch.base_sequence for batch in producer.waiting]} for {waiting.partition}"
            for producer in self._world.producers
            if not producer.is_done
            for waiting in [*producer.waiting][:1]
        ] or [f"{producer.name} goes on" for producer in self._world.producers if not producer.is_done]

    def _transacting(self) -> list[str]:
        return [f"{each.name} goes on" for each in self._world.transactors if not each.is_done]

    def _unequal(self) -> list[str]:
        world, wrong = self._world, []
        for topic, index, state in world.truth.image.partitions():
            ends = {}
            for node_id in state.replicas:
                replica = world.nodes[node_id].broker.replicas.find(topic.name, index)
                inspector = world.nodes[node_id].inspector
                tracked = None if inspector is None else inspector.tracked((topic.topic_id, index))
                if replica is None or tracked is None:
                    ends[node_id] = None
                else:
                    end = replica.log.log_end_offset
                    ends[node_id] = (end, replica.high_watermark, tracked.prefix_at(end))
            first = ends[state.replicas[0]]
            if first is None or first[0] != first[1] or any(end != first for end in ends.values()):
                wrong.append(f"{topic.name}-{index} has ends, high watermarks and contents {ends}")
        return wrong

    def _unstable(self) -> list[str]:
        world, wrong = self._world, []
        groups = {
            group.group_id: group
            for node in world.nodes.values()
            for hosted in hosted_partitions(node.broker)
            for group in hosted.coordinator.shard.groups.values()
        }
        for member in world.members:
            habits, group = member.habits, groups.get(member.habits.group_id)
            if group is None or group.state is not STABLE:
                wrong.append(f"{habits.group_id} is {None if group is None else group.state.name}")
            elif not member.in_step or member.generation != group.generation or member.member_id not in group.members:
                wrong.append(f"{habits.client_id} is not in {habits.group_id}")
        return wrong

    def _group_bound_ms(self) -> int:
        members = [member.habits for member in self._world.members]
        return (
            self._world.plan.initial_rebalance_delay_ms
            + max(habits.group_rebalance_timeout_ms for habits in members)
            + max(habits.session_timeout_ms for habits in members)
            + REACTION_MS
        )

    def _left_by_members(self) -> list[str]:
        wrong = []
        for node in self._world.nodes.values():
            timers = timers_of_groups(node.broker)
            wrong += [f"{node.host} has timers when everybody has gone: {timers}"] if timers else []
            waiting = len(node.broker.replicas.delayed_produce)
            wrong += [f"{node.host} has {waiting} producers that wait"] if waiting else []
        return wrong

    def _forwarding(self) -> list[str]:
        publishers = {node.host: node.broker.events for node in self._world.nodes.values()}
        return [
            f"{host} forwards events"
            for host, publisher in publishers.items()
            if publisher is not None and publisher._forwarding.is_busy
        ]

    # Reading what is there.

    async def _read_offsets(self, group_id: str) -> None:
        """I-16, once more and for everything."""
        for node in self._world.nodes.values():
            wire = await self._world.connect_to(node.address, "auditor")
            ends_us = self._world.loop.now_us + REACTION_MS * 1000
            while await self._must_wait_for_offsets(group_id, wire):
                if self._world.loop.now_us > ends_us:
                    self._calm_was_too_short("I-20", [f"{node.host} still loads {group_id}"], REACTION_MS)
                    break
                await asyncio.sleep(POLL_MS / 1000)
            wire.close()

    async def _must_wait_for_offsets(self, group_id: str, wire: Any) -> bool:
        """Whether the coordinator asks for that; else what it has is judged."""
        world = self._world
        authority = world.authority_of(group_id, wire)
        if authority is None:
            return False
        sent_us = world.loop.now_us
        request: OffsetFetchRequest = fetch_request(group_id, None)
        answer = (await wire.call(request, 9, within_ms=PROMPT_MS)).groups[0]
        if answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            # It may not have heard yet that it leads.
            return True
        if world.authority_of(group_id, wire) == authority:
            self._judge_offsets(group_id, read_offsets(answer), sent_us)
        return False

    def _judge_offsets(self, group_id: str, read: dict[tuple[str, int], tuple[int, str]], sent_us: int) -> None:
        history = self._judge.groups[group_id]
        for partition in history.offsets.partitions():
            offset, metadata = read.get(partition, (-1, ""))
            wrong = history.offsets.judge_read(partition, offset, sent_us)
            if wrong is not None or metadata != metadata_of(offset):
                self._judge.violated("I-16", f"{group_id} {partition}: read {wrong}, {metadata!r}")

    def _not_expired(self) -> list[str]:
        return [
            f"{node.host} has offsets of {GROUP}"
            for node in self._world.nodes.values()
            for hosted in hosted_partitions(node.broker)
            if not hosted.is_loading and hosted.coordinator.shard.durable.knows(GROUP)
        ]

    def _known_producers(self) -> list[str]:
        """Brokers go on to write events about groups and partitions, without producer ids. Guards go with producers
        (I-33). A producer stays whose transaction hangs in a replica that was away until its marker had expired."""
        wrong = []
        for node in self._world.nodes.values():
            for replica in node.broker.replicas:
                producers = replica.log.producers
                known, guards = set(producers.states), len(producers._guards.waiting)
                if known:
                    known -= hanging(replica.log, self._world.undecided_in((replica.topic, replica.index)))
                if known or guards:
                    wrong.append(f"{node.host} knows producers {sorted(known)} and {guards} guards of {replica}")
        return wrong

    def _final_log(self, topic: str, index: int) -> FinalLog:
        """Without what had been deleted where a follower began its log again, if a restart has forgotten that and it is
        there once more: that follower did not know its sequences, and may have led, and stored them again."""
        committed = self._world.inspector.committed_now((topic, index))
        restarted_at = 0 if committed is None else committed.restarted_at
        start = max(self._leading_log(topic, index).log_start_offset, restarted_at)
        records = [record for record in self.final_records(topic, index) if record.offset >= start]
        return FinalLog(start, tuple((record.offset, bytes(record.value or b"").decode()) for record in records))

    def final_records(self, topic: str, index: int) -> list[Record]:
        """What consumers can read."""
        log = self._leading_log(topic, index)
        records: list[Record] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            chunk = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True, wait=True)
            records += [record for record in records_of(chunk.records) if record.offset >= log.log_start_offset]
            if chunk.end_offset == offset:
                # Compaction has left nothing before the log end.
                break
            offset = chunk.end_offset
        return records

    def _leading_log(self, topic: str, index: int) -> Any:
        state = self._world.truth.partition(topic, index)
        assert state is not None, "topics of clients are not deleted"
        return self._world.nodes[state.leader].broker.replicas.partition(topic, index).log
