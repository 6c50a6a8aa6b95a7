"""Scripts about offsets that are committed in transactions, and what administrators ask about them."""

from collections.abc import Sequence

from ottla.broker.handlers.find_coordinator import GROUP, TRANSACTION
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.requests import commit, delete_offsets, join, leave, sync
from tests.differential.script import Script, joined
from tests.differential.scripted_producer import ScriptedProducer
from tests.differential.shown import MADE_UP, code, committed_offsets

OFFSETS_PARTITIONS = 4
OFFSETS_TOPIC = "__consumer_offsets"


class ScriptedGroup:
    """A group, and what a producer commits for it."""

    def __init__(self, script: Script, name: str = "g") -> None:
        self._script = script
        self.group_id = script.own(name)
        found = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[self.group_id])
        script.until(lambda: not script.look(found, 4).coordinators[0].error_code)
        self.member_id, self.generation = "", -1

    def join(self) -> None:
        """Its only member."""
        script = self._script
        joined = script.look(join(self.group_id), 3)
        if not joined.member_id or joined.error_code:
            joined = script.look(join(self.group_id, joined.member_id), 5)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        script.ask("SyncGroup", sync(self.group_id, self.member_id, self.generation), 3, _code)

    def leave(self) -> None:
        self._script.ask("LeaveGroup", leave(self.group_id, (self.member_id, None)), 3, _code)

    def commit(self, offset: int, *, index: int = 0, topic: str = "t") -> None:
        request = commit(
            self.group_id, self._script.own(topic), self.generation, self.member_id, partition=index, offset=offset
        )
        self._script.ask(f"OffsetCommit {index}={offset}", request, 8, _codes_by_partition)

    def commit_with(
        self,
        producer: ScriptedProducer,
        offset: int,
        *,
        indexes: Sequence[int] = (0,),
        topic: str = "t",
        version: int = 3,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        metadata: str | None = "",
        epoch: int | None = None,
        producer_id: int | None = None,
        group_id: str | None = None,
    ) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=self.group_id if group_id is None else group_id,
            producer_id=producer.producer_id if producer_id is None else producer_id,
            producer_epoch=producer.epoch if epoch is None else epoch,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=self._script.own(topic),
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index in indexes
                    ],
                )
            ],
        )
        pair = self._script.names.pair(request.producer_id, request.producer_epoch)
        what = f"TxnOffsetCommit v{version} {pair} {topic}{list(indexes)}={offset}"
        self._script.ask(what, request, version, _codes_by_partition)

    def fetch(self, *, indexes: Sequence[int] | None = (0, 1), topic: str = "t") -> None:
        """With and without waiting for open transactions. None: all that is committed."""
        topics = (
            None
            if indexes is None
            else [OffsetFetchRequestTopics(name=self._script.own(topic), partition_indexes=list(indexes))]
        )
        for stable in (False, True):
            group = OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
            request = OffsetFetchRequest(groups=[group], require_stable=stable)
            what = f"OffsetFetch {'all ' if indexes is None else ''}{'stable' if stable else 'any'}"
            self._script.ask(what, request, 8, _fetched)

    def log(self) -> None:
        script = self._script
        records = script.records(OFFSETS_TOPIC, partition_for(self.group_id, OFFSETS_PARTITIONS))
        for line in committed_offsets(script.names, records, self.group_id):
            script.note(f"{OFFSETS_TOPIC}: {line}")


def _code(answer: object) -> str:
    return code(answer.error_code)  # type: ignore[attr-defined]


def _codes_by_partition(answer: object) -> str:
    return joined(
        sorted(
            f"{topic.name}-{each.partition_index} {code(each.error_code)}"
            for topic in answer.topics  # type: ignore[attr-defined]
            for each in topic.partitions
        )
    )


def _fetched(answer: object) -> str:
    (group,) = answer.groups  # type: ignore[attr-defined]
    found = [
        f"{topic.name}-{each.partition_index} {code(each.error_code)} {each.committed_offset} {each.metadata!r}"
        for topic in group.topics
        for each in topic.partitions
    ]
    return f"{code(group.error_code)} {joined(sorted(found))}"


def pending_offsets(script: Script) -> None:
    """Committed, aborted, and what readers see before."""
    script.create("t", partitions=2)
    producer, group = ScriptedProducer(script, "p"), ScriptedGroup(script)
    producer.initialize()
    group.fetch()
    group.commit_with(producer, 9)
    for commits in (False, True):
        producer.add_offsets(group.group_id)
        group.commit_with(producer, 5, metadata="note")
        group.fetch()
        group.fetch(indexes=None)
        group.commit_with(producer, 6)
        group.commit_with(producer, 7, indexes=(1,), topic="t")
        group.fetch()
        producer.end(commit=commits)
        group.fetch()
        group.fetch(indexes=None)
    group.commit(8)
    producer.add_offsets(group.group_id)
    group.commit_with(producer, 10)
    group.commit(9)
    group.fetch()
    producer.end(commit=True)
    group.fetch()
    group.log()


def offsets_of_two_producers(script: Script) -> None:
    script.create("t", partitions=2)
    one, two, group = ScriptedProducer(script, "p"), ScriptedProducer(script, "q"), ScriptedGroup(script)
    for producer in (one, two):
        producer.initialize()
        producer.add_offsets(group.group_id)
    group.commit_with(one, 1)
    group.commit_with(two, 2)
    group.commit_with(one, 3, indexes=(1,))
    two.end(commit=True)
    group.fetch()
    one.end(commit=True)
    group.fetch()
    group.log()


def odd_commits(script: Script) -> None:
    """Wrong members, generations, topics, groups and producers."""
    script.create("t", partitions=2)
    producer, group = ScriptedProducer(script, "p"), ScriptedGroup(script)
    producer.initialize()
    producer.add_offsets(group.group_id)
    group.commit_with(producer, 1, generation=3)
    group.commit_with(producer, 1, generation=3, version=4)
    group.commit_with(producer, 1, member_id="stranger")
    group.commit_with(producer, 1, instance="static")
    group.commit_with(producer, 1, indexes=(0, 7))
    group.commit_with(producer, 1, topic="nowhere")
    group.commit_with(producer, 1, metadata="x" * 4097)
    group.commit_with(producer, 1, metadata=None)
    group.commit_with(producer, -5)
    group.commit_with(producer, 1, group_id="")
    for version in (0, 2, 3, 4, 5):
        group.commit_with(producer, 1, version=version, epoch=producer.epoch + 1)
        group.commit_with(producer, 1, version=version, epoch=producer.epoch - 1)
        group.commit_with(producer, 1, version=version, producer_id=MADE_UP)
        group.commit_with(producer, 1, version=version, producer_id=-1)
    producer.end(commit=False)
    for version in (0, 2, 3, 4):
        group.commit_with(producer, 1, version=version)
    group.fetch()
    group.commit_with(producer, 1, version=5)
    producer.describe()
    producer.end(commit=True, version=5)
    group.fetch()
    group.log()


def members_commit(script: Script) -> None:
    """The group fences its members (KIP-447)."""
    script.create("t", partitions=2)
    producer, group = ScriptedProducer(script, "p"), ScriptedGroup(script)
    producer.initialize()
    producer.add_offsets(group.group_id)
    group.join()
    group.commit_with(producer, 1)
    group.commit_with(producer, 2, generation=group.generation + 1)
    group.commit_with(producer, 2, generation=group.generation - 1)
    group.commit_with(producer, 2, generation=-1)
    group.commit_with(producer, 2, member_id="stranger")
    group.commit_with(producer, 2, member_id="", instance="static")
    group.commit_with(producer, 3, member_id="", generation=-1)
    group.commit_with(producer, 4, version=0)
    group.fetch()
    group.leave()
    group.commit_with(producer, 5)
    group.commit_with(producer, 6, member_id="", generation=-1)
    producer.end(commit=True)
    group.fetch()
    group.log()


def groups_with_pending_offsets(script: Script) -> None:
    """DeleteGroups and OffsetDelete while a transaction has offsets of the group."""
    script.create("t", partitions=2)
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    for name, committed_first in (("bare", False), ("full", True)):
        group = ScriptedGroup(script, name)
        if committed_first:
            group.commit(1)
        producer.add_offsets(group.group_id)
        group.commit_with(producer, 5)
        group.commit_with(producer, 6, indexes=(1,))
        request = delete_offsets(group.group_id, script.own("t"))
        script.ask("OffsetDelete", request, 0, lambda answer: f"{_code(answer)} {_codes_by_partition(answer)}")
        group.fetch()
        script.ask("DeleteGroups", DeleteGroupsRequest(groups_names=[group.group_id]), 2, _deleted)
        group.fetch()
        producer.end(commit=True)
        group.fetch()
        script.ask("DeleteGroups", DeleteGroupsRequest(groups_names=[group.group_id]), 2, _deleted)
        group.log()


def _deleted(answer: object) -> str:
    return joined([code(each.error_code) for each in answer.results])  # type: ignore[attr-defined]


def odd_coordinators(script: Script) -> None:
    """FindCoordinator and the requests of administrators, with ids that are none."""
    for version in (1, 2, 3):
        for key in ("", "x"):
            request = FindCoordinatorRequest(key_type=TRANSACTION, key=script.own(key) if key else key)
            script.ask(f"FindCoordinator v{version} {key!r}", request, version, _code)
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["", script.own("x"), script.own("x")])
    script.ask(
        "FindCoordinator v4", request, 4, lambda answer: joined([code(each.error_code) for each in answer.coordinators])
    )
    empty = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[])
    script.ask("FindCoordinator v4 nothing", empty, 4, lambda answer: joined([str(e) for e in answer.coordinators]))
    for names in ([], [""], [script.own("x")], [script.own("x"), script.own("x")]):
        describing = DescribeTransactionsRequest(transactional_ids=names)
        script.ask(f"DescribeTransactions {names}", describing, 0, _described_errors)
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="__transaction_state", count=5, assignments=None)],
        timeout_ms=5000,
        validate_only=True,
    )
    script.ask("CreatePartitions __transaction_state", grow, 3, _deleted)


def _described_errors(answer: object) -> str:
    found = answer.transaction_states  # type: ignore[attr-defined]
    return joined([f"{each.transactional_id!r} {code(each.error_code)} {each.transaction_state!r}" for each in found])


def listed_transactions(script: Script) -> None:
    """ListTransactions with each of its filters."""
    script.create("t")
    names = ("empty", "ongoing", "committed", "aborted")
    producers = {name: ScriptedProducer(script, name) for name in names}
    for producer in producers.values():
        producer.initialize()
    for name in names[1:]:
        producers[name].add({"t": [0]})
    producers["committed"].end(commit=True)
    producers["aborted"].end(commit=False)
    for states in (
        [],
        ["Ongoing"],
        ["Empty", "CompleteAbort"],
        ["ongoing"],
        ["Nonsense"],
        ["Nonsense", "Ongoing"],
        ["Dead"],
        ["PrepareEpochFence"],
        ["PrepareCommit"],
        ["Ongoing", "Ongoing"],
    ):
        listed(script, f"states {states}", state_filters=states)
    ids = [producers["empty"].producer_id, producers["ongoing"].producer_id]
    for producer_ids in (ids, ids[:1], [MADE_UP], [MADE_UP, ids[1]], [-1]):
        shown = [script.names.name(each) if each >= 0 else "none" for each in producer_ids]
        listed(script, f"producers {shown}", producer_id_filters=producer_ids)
    listed(script, "pattern and state", version=2, state_filters=["Nonsense"], transactional_id_pattern="(")
    listed(script, "both", state_filters=["Empty"], producer_id_filters=ids[1:])
    for duration_ms in (-1, -2, 0, 3_600_000):
        listed(script, f"duration {duration_ms}", version=1, duration_filter=duration_ms)


def listed_by_pattern(script: Script) -> None:
    """ListTransactions 2, with patterns of RE2J."""
    for name in ("a", "ab", "abc", "b.c", "größe"):
        ScriptedProducer(script, name).initialize()
    for pattern in (
        None,
        "",
        ".*",
        "a.*",
        f"{script.own('a')}",
        f"{script.own('a')}b?",
        f"{script.own('')}.",
        f"{script.own('')}..",
        f"{script.own('')}b[.]c",
        f"{script.own('')}(?i:A)",
        f"^{script.own('')}a$",
        f"{script.own('')}\\pL+",
        f"{script.own('')}[[:alpha:]]+",
        f"{script.own('')}\\Qb.c\\E",
        f"{script.own('')}(?P<x>a)b",
        f"{script.own('')}(?<x>a)b",
        f"{script.own('')}(a|b)c?",
        "(",
        "[",
        "a**",
        "*",
        "(?=a)",
        "(a)\\1",
        "a{1001}",
        "a{2,1}",
        "\\",
        "(?<!a)",
        f"{script.own('')}a{{1,3}}",
        "\\x{110000}",
        f"{script.own('')}\\C",
        "(?z)",
        "x" * 40,
    ):
        listed(script, f"pattern {pattern!r}", version=2, transactional_id_pattern=pattern)


def listed(script: Script, what: str, *, version: int = 0, **filters: object) -> None:
    """Of those ids that are the script's."""
    prefix = script.own("")

    def shown(answer: object) -> str:
        found = [
            f"{each.transactional_id} {script.names.name(each.producer_id)} {each.transaction_state}"
            for each in answer.transaction_states  # type: ignore[attr-defined]
            if each.transactional_id.startswith(prefix)
        ]
        unknown = sorted(answer.unknown_state_filters)  # type: ignore[attr-defined]
        return f"{_code(answer)} unknown {unknown} {joined(sorted(found))}"

    script.ask(f"ListTransactions v{version} {what}", ListTransactionsRequest(**filters), version, shown)


SCRIPTS = (
    pending_offsets,
    offsets_of_two_producers,
    odd_commits,
    members_commit,
    groups_with_pending_offsets,
    odd_coordinators,
    listed_transactions,
    listed_by_pattern,
)
