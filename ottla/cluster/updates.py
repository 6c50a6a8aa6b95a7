"""The image kept up to date with the store, by what its watch delivers.

A change costs what it touches: a topic's tuple of partitions is copied once for all changes of one transaction, the
rest of the image is shared with the one before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.encoding import (
    BROKERS,
    CLUSTER_ID,
    CONTROLLER,
    DECOY_SECRET,
    ENTRIES_PER_SLICE,
    FEATURES,
    LOG_ENDS,
    LOST_DATA,
    PARTITIONS,
    PRODUCER_IDS,
    SESSIONS,
    TOPIC_CONFIGS,
    TOPICS,
    broker_of,
    decoy_secret_of,
    features_of,
    log_ends_of,
    next_producer_id_of,
    parsed,
    partition_of,
    session_of,
    topic_of,
    topics_of,
)
from ottla.cluster.image import (
    FINALIZED_BEFORE,
    NO_LEADER,
    BrokerInfo,
    BrokerState,
    MetadataImage,
    PartitionInfo,
    ScramUser,
    TopicInfo,
)
from ottla.cluster.overlay import Overlay
from ottla.cluster.scram_users import scram_credential_of, scram_credentials_in_slices, scram_user
from ottla.cluster.store import ACLS, QUOTAS, SCRAM, Changes, Entry, Snapshot
from ottla.security.scram_credential import ScramCredential

if TYPE_CHECKING:
    from ottla.security.acl import AclBinding
    from ottla.security.quotas import EntityQuotas, QuotaEntity


class ImageUpdate(NamedTuple):
    """The new image, and what is not as it was: topics by name (created, changed or gone) with the partitions of them
    whose state changed, and brokers."""

    image: MetadataImage
    topics: Mapping[str, tuple[int, ...]]
    brokers: tuple[int, ...]
    controller_changed: bool


class Understood(NamedTuple):
    """The long parts of a snapshot, which can be parsed a few entries at a time."""

    topics: Sequence[TopicInfo]
    scram_credentials: Mapping[ScramUser, ScramCredential]
    acls: "Mapping[str, AclBinding]"
    """By their keys."""
    client_quotas: "Mapping[QuotaEntity, EntityQuotas]"

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Understood":
        """Raises StoreError."""
        credentials = {owner: each for some in scram_credentials_in_slices(entries) for owner, each in some.items()}
        acls = {key: acl for some in acls_in_slices(entries) for key, acl in some.items()}
        quotas = {entity: each for some in quotas_in_slices(entries) for entity, each in some.items()}
        return cls(topics_of(entries), credentials, acls, quotas)


def acls_in_slices(entries: Sequence[Entry]) -> "Iterator[dict[str, AclBinding]]":
    """The ACLs in what was read from a store, by key, a few at a time. Raises StoreError."""
    stored = [entry for entry in entries if entry.key.startswith(ACLS)]
    if stored:
        # Imported here: a broker without ACLs starts without it.
        from ottla.cluster.acls import acl_of

        for start in range(0, len(stored), ENTRIES_PER_SLICE):
            yield {entry.key: acl_of(entry) for entry in stored[start : start + ENTRIES_PER_SLICE]}


def quotas_in_slices(entries: Sequence[Entry]) -> "Iterator[dict[QuotaEntity, EntityQuotas]]":
    """The client quotas in what was read from a store, a few entities at a time. Raises StoreError."""
    stored = [entry for entry in entries if entry.key.startswith(QUOTAS)]
    if stored:
        # Imported here: a broker without quotas starts without it.
        from ottla.cluster.client_quotas import quotas_of

        for start in range(0, len(stored), ENTRIES_PER_SLICE):
            yield dict(map(quotas_of, stored[start : start + ENTRIES_PER_SLICE]))


def applied(image: MetadataImage, event: Snapshot | Changes, understood: Understood | None = None) -> ImageUpdate:
    """`understood` is of a snapshot, where that was parsed already.

    Raises StoreError when something in the event cannot be understood; the image is then as it was."""
    if isinstance(event, Changes):
        return _from_changes(image, event)
    return _from_snapshot(image, event, understood or Understood.of(event.entries))


def _from_snapshot(image: MetadataImage, snapshot: Snapshot, understood: Understood) -> ImageUpdate:
    """Everything was read again: what is not in it is gone."""
    names = {topic.name: topic for topic in understood.topics}
    changed: dict[str, TopicInfo | None] = {
        name: names.get(name) for name in (*image.topics, *names) if _differs(image.topics.get(name), names.get(name))
    }
    fresh = replace(
        image,
        revision=snapshot.revision,
        controller_id=NO_LEADER,
        controller_epoch=0,
        features=FINALIZED_BEFORE,
        scram_credentials=Overlay(understood.scram_credentials),
        acls=Overlay["str", "AclBinding"](),
        acl_index=None,
        client_quotas=Overlay["QuotaEntity", "EntityQuotas"](),
        quota_index=None,
        decoy_secret=b"",
        next_producer_id=0,
    )
    if understood.acls:
        fresh = fresh.with_acls(understood.acls)
    if understood.client_quotas:
        fresh = fresh.with_client_quotas(understood.client_quotas)
    others = _Others(fresh, dict.fromkeys(image.brokers))
    others.put(snapshot.entries)
    after = others.image().with_topics(changed)
    return _update(image, after, changed)


def _from_changes(image: MetadataImage, changes: Changes) -> ImageUpdate:
    others = _Others(replace(image, revision=changes.revision), {})
    others.put(changes.puts)
    if changes.deletes:
        others.delete(changes.deletes)
    topics = _topics_after(image, changes)
    after = others.image().with_topics(topics) if topics else others.image()
    if any(key.startswith(_OF_CLIENTS) for key in (*changes.deletes, *(entry.key for entry in changes.puts))):
        after = _with_clients(after, changes)
    return _update(image, after, topics)


def _update(before: MetadataImage, after: MetadataImage, changed: Mapping[str, TopicInfo | None]) -> ImageUpdate:
    topics = {name: _partitions_changed(before.topics.get(name), topic) for name, topic in changed.items()}
    brokers = tuple(
        node_id
        for node_id in sorted({*before.brokers, *after.brokers})
        if before.brokers.get(node_id) != after.brokers.get(node_id)
    )
    return ImageUpdate(after, topics, brokers, after.controller_epoch != before.controller_epoch)


def _differs(before: TopicInfo | None, after: TopicInfo | None) -> bool:
    """Also where only revisions differ, for decisions are made with them."""
    if before is None or after is None or before != after:
        return before is not after
    revisions = (before.revision, before.configs_revision) != (after.revision, after.configs_revision)
    return revisions or [each.revision for each in before.partitions] != [each.revision for each in after.partitions]


def _partitions_changed(old: TopicInfo | None, new: TopicInfo | None) -> tuple[int, ...]:
    if old is None or new is None or old.topic_id != new.topic_id:
        longest = max(len(topic.partitions) for topic in (old, new) if topic is not None)
        return tuple(range(longest))
    common = (
        index
        for index, (was, now) in enumerate(zip(old.partitions, new.partitions, strict=False))
        if was is not now and was != now
    )
    shorter, longer = sorted((len(old.partitions), len(new.partitions)))
    return (*common, *range(shorter, longer))


# Topics.


def _topics_after(image: MetadataImage, changes: Changes) -> dict[str, TopicInfo | None]:
    """A topic that is written again comes with all of its keys or with a topic that has the others."""
    touched: dict[str, dict[str, Entry]] = {}
    gone: set[str] = set()
    for entry in changes.puts:
        name = _topic_name(entry.key)
        if name is not None:
            touched.setdefault(name, {})[entry.key] = entry
    for key in changes.deletes:
        if key.startswith(TOPICS):
            gone.add(key.removeprefix(TOPICS))
    after: dict[str, TopicInfo | None] = dict.fromkeys(sorted(gone))
    for name, entries in touched.items():
        topic = image.topics.get(name) if name not in gone else None
        changed = topic_of(name, entries) if topic is None and TOPICS + name in entries else None
        if topic is not None:
            changed = _topic_after(topic, entries)
        if changed is not None:
            after[name] = changed
    return after


def _topic_after(topic: TopicInfo, entries: Mapping[str, Entry]) -> TopicInfo:
    named = entries.get(TOPICS + topic.name)
    count = len(topic.partitions)
    if named is not None:
        value = parsed(named)
        if bytes.fromhex(value["id"]) != topic.topic_id:
            return topic_of(topic.name, entries)
        count = value["partitions"]
        topic = replace(topic, revision=named.revision)
    configs = entries.get(TOPIC_CONFIGS + topic.name)
    if configs is not None:
        topic = replace(topic, configs=parsed(configs), configs_revision=configs.revision)
    prefix = f"{PARTITIONS}{topic.name}/"
    states: dict[int, PartitionInfo] = {
        int(key.removeprefix(prefix)): partition_of(entry) for key, entry in entries.items() if key.startswith(prefix)
    }
    if not states and count >= len(topic.partitions):
        return topic
    return replace(topic, partitions=_partitions_after(topic.partitions[:count], states, count))


def _partitions_after(
    before: tuple[PartitionInfo, ...], states: Mapping[int, PartitionInfo], count: int
) -> tuple[PartitionInfo, ...]:
    partitions = list(before)
    for index, state in sorted(states.items()):
        if index < len(partitions):
            partitions[index] = state
        elif index == len(partitions) < count:
            partitions.append(state)
    return tuple(partitions)


def _topic_name(key: str) -> str | None:
    if key.startswith(PARTITIONS):
        return key.removeprefix(PARTITIONS).rpartition("/")[0]
    for prefix in (TOPICS, TOPIC_CONFIGS):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return None


# Who clients are, what they may do, and how much.

_OF_CLIENTS = (SCRAM, ACLS, QUOTAS)


def _with_clients(image: MetadataImage, changes: Changes) -> MetadataImage:
    credentials = _scram_credentials_after(changes)
    after = image.with_scram_credentials(credentials) if credentials else image
    acls = _acls_after(changes)
    after = after.with_acls(acls) if acls else after
    quotas = _quotas_after(changes)
    return after.with_client_quotas(quotas) if quotas else after


def _scram_credentials_after(changes: Changes) -> dict[ScramUser, ScramCredential | None]:
    after: dict[ScramUser, ScramCredential | None] = {
        scram_user(key): None for key in changes.deletes if key.startswith(SCRAM)
    }
    return after | dict(scram_credential_of(entry) for entry in changes.puts if entry.key.startswith(SCRAM))


def _acls_after(changes: Changes) -> "dict[str, AclBinding | None]":
    after: dict[str, AclBinding | None] = {key: None for key in changes.deletes if key.startswith(ACLS)}
    for some in acls_in_slices(changes.puts):
        after |= some
    return after


def _quotas_after(changes: Changes) -> "dict[QuotaEntity, EntityQuotas | None]":
    after: dict[QuotaEntity, EntityQuotas | None] = {}
    gone = [key for key in changes.deletes if key.startswith(QUOTAS)]
    if gone:
        from ottla.cluster.client_quotas import quota_entity

        after = dict.fromkeys(map(quota_entity, gone))
    for some in quotas_in_slices(changes.puts):
        after |= some
    return after


# Brokers and the rest.


class _Others:
    """Collects what one event says of brokers, controller and cluster."""

    def __init__(self, image: MetadataImage, brokers: dict[int, BrokerInfo | None]) -> None:
        self._image = image
        self._brokers = brokers

    def image(self) -> MetadataImage:
        return self._image.with_brokers(self._brokers) if self._brokers else self._image

    def put(self, entries: Iterable[Entry]) -> None:
        """Registrations first: a session belongs to the one that has its incarnation."""
        sessions: list[Entry] = []
        for entry in entries:
            key = entry.key
            if key.startswith(BROKERS):
                broker = broker_of(entry)
                known = self._broker(broker.node_id)
                self._brokers[broker.node_id] = replace(broker, lost_data=known is not None and known.lost_data)
            elif key.startswith((SESSIONS, LOST_DATA, LOG_ENDS)):
                sessions.append(entry)
            elif key == CONTROLLER:
                self._image = replace(self._image, controller_id=parsed(entry)["id"], controller_epoch=entry.revision)
            elif key == CLUSTER_ID:
                self._image = replace(self._image, cluster_id=entry.value.decode())
            elif key == FEATURES:
                self._image = replace(self._image, features=features_of(entry))
            elif key == DECOY_SECRET:
                self._image = replace(self._image, decoy_secret=decoy_secret_of(entry))
            elif key == PRODUCER_IDS:
                self._image = replace(self._image, next_producer_id=next_producer_id_of(entry))
        for entry in sessions:
            self._put_session(entry)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key == CONTROLLER:
                self._image = replace(self._image, controller_id=NO_LEADER, controller_epoch=0)
            elif key == FEATURES:
                self._image = replace(self._image, features=FINALIZED_BEFORE)
            elif key == DECOY_SECRET:
                self._image = replace(self._image, decoy_secret=b"")
            elif key == PRODUCER_IDS:
                self._image = replace(self._image, next_producer_id=0)
            elif key.startswith(BROKERS):
                self._brokers[int(key.removeprefix(BROKERS))] = None
            elif key.startswith(SESSIONS):
                self._change(int(key.removeprefix(SESSIONS)), state=BrokerState.FENCED, session_revision=0)
            elif key.startswith(LOST_DATA):
                self._change(int(key.removeprefix(LOST_DATA)), lost_data=False)
            elif key.startswith(LOG_ENDS):
                self._change(int(key.removeprefix(LOG_ENDS)), log_ends={})

    def _put_session(self, entry: Entry) -> None:
        if entry.key.startswith(LOST_DATA):
            self._change(int(entry.key.removeprefix(LOST_DATA)), lost_data=True)
            return
        if entry.key.startswith(LOG_ENDS):
            self._change(int(entry.key.removeprefix(LOG_ENDS)), log_ends=log_ends_of(entry))
            return
        node_id = int(entry.key.removeprefix(SESSIONS))
        incarnation, state = session_of(entry)
        broker = self._broker(node_id)
        if broker is not None and broker.incarnation == incarnation:
            self._brokers[node_id] = replace(broker, state=state, session_revision=entry.revision)

    def _change(self, node_id: int, **fields: object) -> None:
        broker = self._broker(node_id)
        if broker is not None:
            self._brokers[node_id] = replace(broker, **fields)  # type: ignore[arg-type]

    def _broker(self, node_id: int) -> BrokerInfo | None:
        return self._brokers[node_id] if node_id in self._brokers else self._image.brokers.get(node_id)
