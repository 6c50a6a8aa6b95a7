"""A broker with one partition: it serves its followers, asks its leader, and learns what the controller has committed.

Its log is a real one, on a disk in memory. What it sends waits in `Cluster.network` until somebody delivers it.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.broker.replicas.follower_log import Report, perform
from ottla.broker.replicas.shared_reads import SharedReads, read_for_follower
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEnd
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from ottla.replication.fetch_session import FetchTarget
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.replication.fetcher import Fetcher
from ottla.replication.fetcher_manager import FetcherManager
from ottla.replication.fetcher_requests import FetcherConfig, FetcherRequest, LeaderEndpoint
from ottla.replication.follower_effects import Effect, Truncated
from ottla.replication.follower_session import FollowerSession
from ottla.replication.isr import IsrChange
from ottla.replication.leadership import ReplicationRules
from ottla.replication.partition import Partition, StateChange
from ottla.replication.replica_follower import LATEST_TIMESTAMP, ReplicaFollower
from ottla.replication.replica_reads import FollowerFetch, FollowerRead
from tests.fakes.disk import FakeDisk
from tests.replication.channel import ChangeMessage, Request
from tests.replication.controller import BROKERS, NO_LEADER, State
from tests.storage.support import NOW, TOPIC_ID, open_directory

if TYPE_CHECKING:
    from tests.replication.cluster import Cluster

TOPIC, INDEX = "t", 0
LAG_MS_MAX = 60


@dataclass
class Kinds:
    """What the brokers are made of; a mutant changes one of them."""

    partition: type[Partition] = Partition
    follower: Callable[..., ReplicaFollower] = ReplicaFollower
    read: Callable[..., FollowerRead] = read_for_follower


class Broker:
    """One life of a broker process: the shell around a partition."""

    def __init__(self, cluster: "Cluster", broker_id: int, disk: FakeDisk, epoch: int) -> None:
        self.cluster, self.id, self.disk, self.epoch = cluster, broker_id, disk, epoch
        self.learnt = 0
        self.directory = open_directory(disk, cluster.config, node_id=broker_id)
        log = self.directory.logs.get((TOPIC, INDEX))
        if log is None:
            log = self.directory.create_log(TOPIC, INDEX, TOPIC_ID, cluster.config, now_wall_ms=NOW)
            log.flush()
        self.log = log
        self.partition = cluster.kinds.partition(
            TOPIC,
            INDEX,
            TOPIC_ID,
            log,
            local_id=broker_id,
            high_watermark=log.restored_high_watermark,
            rules=ReplicationRules(Registrations(self), lag_ms_max=LAG_MS_MAX),
        )
        self.shared_reads = SharedReads()
        self.sessions = FetchSessionCache(10, itertools.count(1).__next__, FollowerSession)
        self.fetchers = FetcherManager(
            FetcherConfig(replica_id=broker_id, partition_max_bytes=cluster.fetch_bytes),
            new_follower=cluster.kinds.follower,
        )
        self.connected: list[Fetcher] = []
        self.asking: dict[int, FetcherRequest] = {}

    @property
    def known(self) -> State:
        return self.cluster.controller.history[self.learnt]

    def learn(self, version: int) -> None:
        """Apply one committed state."""
        self.learnt = version
        state, partition = self.known, self.partition
        taken = partition.apply_state(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=BROKERS,
            isr=state.isr,
            elr=sorted(state.elr),
            now_ms=self.cluster.now_ms,
        )
        if taken is StateChange.BECAME_LEADER or (taken is StateChange.BECAME_FOLLOWER and state.leader == NO_LEADER):
            self.fetchers.remove_partition(TOPIC, INDEX)
        elif taken is StateChange.BECAME_FOLLOWER:
            effects = self.fetchers.add_partition(partition, LeaderEndpoint("broker", state.leader))
            self.perform(effects, self.fetchers.performed)
        changes = self.fetchers.take_changes()
        self.connected = [fetcher for fetcher in self.connected if fetcher not in changes.ended] + changes.started

    def perform(self, effects: list[Effect], report: Report) -> None:
        for fact in perform(effects, report, now_ms=self.cluster.now_ms, wall_ms=NOW):
            if isinstance(fact, Truncated):
                # Or the old end could come back with the power, under the epochs of the new one.
                self.log.flush()
            self.cluster.facts.append((self.id, fact))

    # As a leader.

    def serve(self, request: Any) -> Any:
        if isinstance(request, FetchRequest):
            return self._serve_fetch(request)
        return self._serve_offsets(request) if isinstance(request, ListOffsetsRequest) else self._serve_epochs(request)

    def _serve_fetch(self, request: FetchRequest) -> FetchResponse:
        targets = [
            FetchTarget(
                TOPIC,
                topic.topic_id,
                asked.partition,
                fetch_offset=asked.fetch_offset,
                max_bytes=asked.partition_max_bytes,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                log_start_offset=asked.log_start_offset,
                uses_topic_ids=True,
            )
            for topic in request.topics
            for asked in topic.partitions
        ]
        context = self.sessions.begin(
            request.session_id,
            request.session_epoch,
            targets,
            [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions],
            connection=request.replica_state.replica_id,
            owner="broker",
            uses_topic_ids=True,
            is_follower=True,
            now_ms=self.cluster.now_ms,
        )
        if context.error:
            return FetchResponse(error_code=int(context.error))
        session = context.session
        assert isinstance(session, FollowerSession), "a follower has a session of its kind"
        session.replica_id = request.replica_state.replica_id
        answers = [self._fetch(target, request.replica_state, session) for target in context.targets]
        session.contact.last_fetch_ms = self.cluster.now_ms
        included = context.answered(answers, self.cluster.now_ms)
        partitions = [answer for answer, include in zip(answers, included, strict=True) if include]
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
        return FetchResponse(session_id=context.session_id, responses=topics)

    def _fetch(self, target: FetchTarget, replica: Any, session: FollowerSession) -> PartitionData:
        """What the shell does for each partition of a replica's fetch."""
        partition = self.partition
        session.watch(target, partition)
        answer = PartitionData(partition_index=INDEX, records=b"")
        fetch = FollowerFetch(
            replica.replica_id,
            replica.replica_epoch,
            target.fetch_offset,
            target.log_start_offset,
            target.current_leader_epoch,
            target.last_fetched_epoch,
        )
        try:
            read = self.cluster.kinds.read(
                partition, fetch, target.max_bytes, at_least_one_batch=True, shared=self.shared_reads
            )
            if read.diverging is None:
                now_ms = self.cluster.now_ms
                noted = partition.note_follower_fetch(fetch, read.leader_end_offset, now_ms, session.contact)
                self.ask_for(noted.isr_change)
                answer.records = memoryview(
                    b"".join([read.records] if isinstance(read.records, memoryview) else read.records)
                )
            else:
                answer.diverging_epoch = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
        except KafkaError as error:
            answer.error_code = int(error.code)
        answer.high_watermark, answer.log_start_offset = partition.high_watermark, partition.log.log_start_offset
        return answer

    def _serve_epochs(self, request: Any) -> OffsetForLeaderEpochResponse:
        asked = request.topics[0].partitions[0]
        answer = EpochEnd(partition=INDEX)
        try:
            self.partition.check_leader(asked.current_leader_epoch)
            answer.leader_epoch, answer.end_offset = self.partition.log.end_offset_for_epoch(asked.leader_epoch)
        except KafkaError as error:
            answer.error_code = int(error.code)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[answer])])

    def _serve_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0]
        answer = ListOffsetsPartitionResponse(partition_index=INDEX)
        try:
            self.partition.check_leader(asked.current_leader_epoch)
            is_end = asked.timestamp == LATEST_TIMESTAMP
            answer.offset = self.log.log_end_offset if is_end else self.log.log_start_offset
        except KafkaError as error:
            answer.error_code = int(error.code)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[answer])])

    def ask_for(self, change: IsrChange | None) -> None:
        if change is not None:
            self.cluster.network.append(ChangeMessage(self, change))

    # As a follower.

    def ask(self) -> None:
        """Let each fetcher that waits for no answer ask its leader."""
        for fetcher in self.connected:
            if id(fetcher) not in self.asking:
                pending = fetcher.next_request(self.cluster.now_ms, self.epoch)
                if pending is not None:
                    self.asking[id(fetcher)] = pending
                    self.cluster.network.append(Request(self, fetcher, pending))


class Registrations:
    """What the broker knows of the others, from the last state it has learnt."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def epoch_of(self, broker_id: int) -> int:
        return self._broker.known.epoch_of(broker_id)

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        return self._broker.known.may_join_isr(broker_id, broker_epoch)
