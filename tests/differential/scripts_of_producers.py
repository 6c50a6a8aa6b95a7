"""Scripts about transactional ids: what the coordinator of transactions answers and stores."""

from ottla.broker.config.alter import ConfigResourceType
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.differential.script import Script
from tests.differential.scripted_producer import NO_PAIR, STATE_TOPIC, ScriptedProducer
from tests.differential.scripts_of_partitions import mark, marker
from tests.differential.shown import MADE_UP

LAST_EPOCH = 32767


def first_epochs(script: Script) -> None:
    """InitProducerId of a new id, again, and with what the producer has."""
    producer = ScriptedProducer(script, "p")
    producer.describe()
    producer.initialize()
    first = producer.producer_id, producer.epoch
    producer.initialize()
    second = producer.producer_id, producer.epoch
    producer.initialize(pair=second)
    # The answer was lost.
    producer.initialize(pair=second)
    producer.initialize(pair=first)
    producer.initialize(pair=first, version=3)
    producer.initialize(pair=(producer.producer_id, producer.epoch + 1))
    producer.initialize(pair=(MADE_UP, 0))
    producer.initialize(pair=(MADE_UP, 0), version=3)
    producer.initialize()
    # After one without a pair, its predecessor has no way back.
    producer.initialize(pair=(producer.producer_id, producer.epoch - 1))
    producer.describe()
    producer.log()


def odd_initializations(script: Script) -> None:
    producer = ScriptedProducer(script, "p")
    for timeout_ms in (0, -1, 900_001, 2**31 - 1, 900_000, 1):
        producer.initialize(timeout_ms=timeout_ms)
    for version in (0, 1, 2, 3, 4):
        producer.initialize(version=version)
    producer.initialize(pair=(-1, 0))
    producer.initialize(pair=(MADE_UP, -1))
    producer.initialize(name="")
    producer.initialize(name="", timeout_ms=0)
    producer.initialize(pair=(-2, -2))
    producer.initialize(timeout_ms=0, pair=(MADE_UP, -1))
    # An id that the coordinator does not know, with a pair.
    stranger = ScriptedProducer(script, "stranger")
    stranger.initialize(pair=(MADE_UP, 5))
    stranger.log()


def one_commit_and_one_abort(script: Script) -> None:
    script.create("t", partitions=2)
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    for commit in (True, False):
        producer.add({"t": [0]})
        producer.add({"t": [0]})
        producer.add({"t": [0, 1]})
        producer.describe()
        producer.produce("t", "x", "y", sequence=0 if commit else 2)
        producer.end(commit=commit)
        producer.describe()
        producer.end(commit=commit)
        producer.end(commit=not commit)
    producer.log()
    script.log("t")
    script.log("t", 1)


def commits_that_raise_the_epoch(script: Script) -> None:
    """EndTxn 5: each transaction has an epoch of its own (KIP-890)."""
    script.create("t")
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    for commit in (True, False):
        producer.produce("t", "x", version=12)
        producer.describe()
        before = producer.epoch
        producer.end(commit=commit, version=5)
        producer.end(commit=commit, version=5, epoch=before)
        producer.end(commit=not commit, version=5, epoch=before)
        producer.end(commit=True, version=5)
    # Nothing was produced.
    producer.end(commit=False, version=5)
    producer.end(commit=True, version=5)
    producer.end(commit=False, version=5, epoch=producer.epoch + 1)
    producer.end(commit=False, version=5, epoch=producer.epoch - 2)
    producer.end(commit=False, version=5, producer_id=MADE_UP)
    producer.describe()
    producer.log()
    script.log("t")


def ends_of_nothing(script: Script) -> None:
    script.create("t")
    producer = ScriptedProducer(script, "p")
    producer.producer_id, producer.epoch = MADE_UP, 0
    for version in (1, 4, 5):
        producer.end(commit=True, version=version, awaits_markers=False)
    producer.initialize()
    for version in (1, 4, 5):
        producer.end(commit=True, version=version)
    producer.end(commit=False, version=4)
    producer.end(commit=False, version=5)
    for version in (0, 1, 2, 4, 5):
        for other in ({"epoch": producer.epoch + 1}, {"epoch": LAST_EPOCH}, {"producer_id": MADE_UP}):
            producer.end(commit=True, version=version, awaits_markers=False, **other)
    producer.add({"t": [0]})
    for version in (1, 4, 5):
        producer.end(commit=True, version=version, epoch=producer.epoch - 1)
        producer.end(commit=False, version=version, epoch=producer.epoch + 1)
    producer.end(commit=False)
    producer.log()


def odd_partitions(script: Script) -> None:
    """AddPartitionsToTxn of what cannot be part of a transaction, and of strangers."""
    script.create("t", partitions=2)
    producer = ScriptedProducer(script, "p")
    producer.producer_id, producer.epoch = MADE_UP, 0
    producer.add({"t": [0]})
    producer.add_as_broker({"t": [0]})
    producer.initialize()
    producer.add({"t": [0, 7]})
    producer.add({"nowhere": [0], "t": [0, 1]})
    producer.add({"__consumer_offsets": [0], "t": [0]})
    producer.add({"__transaction_state": [0]})
    producer.add({})
    producer.describe()
    for version in (0, 1, 2, 3):
        for other in ({"epoch": producer.epoch + 1}, {"epoch": -1}, {"producer_id": MADE_UP}):
            producer.add({"t": [0]}, version=version, **other)
    producer.add({"t": [0]}, version=0)
    producer.describe()
    for version in (4, 5):
        producer.add_as_broker({"t": [0, 1]}, version=version, verify_only=True)
        producer.add_as_broker({"t": [0, 7]}, version=version, verify_only=True)
        producer.add_as_broker({"t": [0]}, version=version, verify_only=True, epoch=7)
        producer.add_as_broker({"t": [0]}, version=version, verify_only=True, producer_id=MADE_UP)
    producer.add_as_broker({"t": [1], "__consumer_offsets": [1]})
    producer.describe()
    producer.end(commit=True)
    producer.add_as_broker({"t": [0]}, verify_only=True)
    producer.log()


def coordinators_topic(script: Script) -> None:
    """Of a partition of `__transaction_state` itself."""
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    producer.add_as_broker({"__transaction_state": [0]})
    producer.describe()


def offsets_of_groups(script: Script) -> None:
    """AddOffsetsToTxn."""
    producer = ScriptedProducer(script, "p")
    producer.producer_id, producer.epoch = MADE_UP, 0
    producer.add_offsets("group")
    producer.initialize()
    for version in (0, 1, 2, 4):
        producer.add_offsets("group", version=version, epoch=producer.epoch + 1)
        producer.add_offsets("group", version=version, producer_id=MADE_UP)
    producer.add_offsets("")
    producer.describe()
    producer.add_offsets("group")
    producer.add_offsets("group")
    producer.describe()
    producer.end(commit=False)
    producer.log()


def fenced_by_a_newer_one(script: Script) -> None:
    script.create("t")
    older, newer = ScriptedProducer(script, "p"), ScriptedProducer(script, "p")
    older.initialize()
    older.add({"t": [0]})
    older.produce("t", "lost")
    newer.initialize()
    newer.until("CompleteAbort")
    newer.initialize()
    older.produce("t", "late", sequence=1)
    older.produce("t", "late", sequence=1, version=9)
    older.produce("t", "late", sequence=1, version=12)
    for version in (1, 2, 3):
        older.add({"t": [0]}, version=version)
    older.add_offsets("group")
    for version in (1, 4, 5):
        older.end(commit=True, version=version)
        older.end(commit=False, version=version)
    older.initialize(pair=(older.producer_id, older.epoch))
    newer.add({"t": [0]})
    newer.produce("t", "kept")
    newer.end(commit=True)
    newer.log()
    script.log("t")


def replaced_by_the_older_protocol(script: Script) -> None:
    """The newer producer's transaction ends and leaves its epoch as it is, one above that of the older."""
    script.create("t")
    for commit in (True, False):
        name = "commits" if commit else "aborts"
        older, newer = ScriptedProducer(script, name), ScriptedProducer(script, name)
        older.initialize()
        newer.initialize()
        newer.add({"t": [0]})
        newer.end(commit=commit)
        older.end(commit=not commit, version=5)
        older.end(commit=commit, version=5)
        newer.describe()


def timed_out(script: Script) -> None:
    """The coordinator aborts, and the producer goes on."""
    script.create("t")
    for version in (4, 5):
        producer = ScriptedProducer(script, f"p{version}")
        producer.initialize(timeout_ms=1)
        producer.add({"t": [0]})
        producer.until("CompleteAbort")
        producer.describe()
        producer.produce("t", "late")
        producer.produce("t", "late", version=12)
        producer.add({"t": [0]})
        producer.end(commit=True, version=version)
        producer.end(commit=False, version=version)
        producer.initialize(pair=(producer.producer_id, producer.epoch))
        producer.initialize()
        producer.log()
    script.log("t")


def recovered_with_its_pair(script: Script) -> None:
    """InitProducerId with a pair while a transaction is open (KIP-360)."""
    script.create("t")
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    pair = producer.producer_id, producer.epoch
    producer.add({"t": [0]})
    producer.initialize(pair=(pair[0], 9))
    producer.until("CompleteAbort")
    producer.initialize(pair=pair)
    producer.initialize(pair=(pair[0], pair[1] + 1))
    producer.add({"t": [0]})
    producer.initialize(pair=(MADE_UP, 0))
    producer.initialize(pair=NO_PAIR)
    producer.until("CompleteAbort")
    producer.log()
    script.log("t")


def stuck_decision(script: Script) -> None:
    """A marker by hand has fenced the coordinator, whose own is refused: its transaction stays decided."""
    script.create("t", partitions=2)
    producer, group = ScriptedProducer(script, "p"), script.own("g")
    producer.initialize()
    producer.add({"t": [0, 1]})
    producer.produce("t", "x", index=1)
    mark(script, marker(script, producer, commit=False, coordinator_epoch=9))
    producer.end(commit=True, awaits_markers=False)
    producer.until_missing("t", 0)
    producer.describe()
    producer.initialize()
    producer.initialize(pair=(producer.producer_id, producer.epoch))
    producer.initialize(pair=(MADE_UP, 0))
    producer.add({"t": [0]})
    producer.add({"t": [0]}, epoch=producer.epoch + 1)
    producer.add({"t": [0]}, producer_id=MADE_UP)
    producer.add_offsets(group)
    producer.add_as_broker({"t": [0]})
    for other in ({}, {"epoch": producer.epoch + 1}, {"producer_id": MADE_UP}):
        producer.add_as_broker({"t": [0]}, verify_only=True, **other)
        for version in (1, 4, 5):
            producer.end(commit=True, version=version, awaits_markers=False, **other)
            producer.end(commit=False, version=version, awaits_markers=False, **other)
    for version in (9, 11, 12):
        producer.produce("t", "y", sequence=1, index=1, version=version)
    producer.log()
    script.log("t", 1)


def lowered_bound(script: Script) -> None:
    """A transaction's record is larger than `max.message.bytes` of `__transaction_state` has become."""
    script.create("t", partitions=40)
    ended, fenced = (ScriptedProducer(script, name) for name in ("ended", "fenced"))
    probe = ScriptedProducer(script, "long" * 100)
    everywhere = {"t": list(range(40))}
    ended.initialize()
    fenced.initialize()
    bound(script, STATE_TOPIC, 250, probe)
    ended.add(everywhere)
    ended.describe()
    bound(script, STATE_TOPIC, None, probe)
    ended.add(everywhere)
    fenced.add(everywhere)
    bound(script, STATE_TOPIC, 250, probe)
    ended.add(everywhere)
    ended.end(commit=True, awaits_markers=False)
    fenced.initialize()
    bound(script, STATE_TOPIC, None, probe)
    ended.end(commit=True)
    fenced.initialize()


def bound(script: Script, topic: str, size: int | None, probe: ScriptedProducer) -> None:
    """Or the default again, in force when a record of the probe, whose id is longer, is refused or not."""
    config = AlterableConfig(name="max.message.bytes", config_operation=int(size is None))
    config.value = None if size is None else str(size)
    resource = AlterConfigsResource(resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, configs=[config])
    script.look(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    script.until(lambda: probe.is_refused() == (size is not None))


SCRIPTS = (
    first_epochs,
    odd_initializations,
    one_commit_and_one_abort,
    commits_that_raise_the_epoch,
    ends_of_nothing,
    odd_partitions,
    coordinators_topic,
    offsets_of_groups,
    fenced_by_a_newer_one,
    replaced_by_the_older_protocol,
    timed_out,
    recovered_with_its_pair,
    stuck_decision,
    lowered_bound,
)
