"""How a broker enters and leaves the cluster: registration, session, activation, shutdown. Pure.

A registration stays when its broker goes; a session lives under a lease. A process registers with an incarnation drawn
at its start; the revision of the registration is its broker epoch. It starts fenced, becomes active when it has caught
up and nothing of its earlier life is left to be done (`controller.unfinished`), says that it is stopping before
it stops, and is fenced again when its session ends, by whatever cause.

    no session --register--> STARTING --activate--> ACTIVE --begin_shutdown--> STOPPING
        ^                        |                     |                          |
        +------------------ lease expired or revoked --+--------------------------+

A broker that finds no other registered need not ask a controller, and begins as ACTIVE.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.cluster.encoding import (
    ALL_BROKERS,
    BROKER_CONFIGS,
    BROKERS,
    CLUSTER_ID,
    CONTROLLER,
    DECOY_SECRET,
    FEATURES,
    LOG_ENDS,
    LOST_DATA,
    PARTITIONS,
    PRODUCER_IDS,
    SESSIONS,
    broker_of,
    config_value,
    controller_value,
    decoy_secret_value,
    log_ends_value,
    next_producer_id_of,
    next_producer_id_value,
    partition_of,
    registration_value,
    session_of,
    session_value,
)
from ottla.cluster.features import check_supports_finalized, finalize_in_new_cluster
from ottla.cluster.image import (
    SUPPORTED_FEATURES,
    BrokerInfo,
    BrokerState,
    LevelRange,
    Listener,
    LogEnd,
    MetadataImage,
)
from ottla.cluster.store import ABSENT, NO_LEASE, Change, Delete, Entry, Expect, Put, Transaction
from ottla.protocol.errors import ErrorCode, error_for


@dataclass(frozen=True, slots=True)
class Registration:
    """What a starting process says of itself. `clean_shutdown`: its logs have all that its earlier life
    acknowledged."""

    node_id: int
    incarnation: str
    cluster_id: str
    host: str
    port: int
    clean_shutdown: bool
    rack: str | None = None
    listeners: tuple[Listener, ...] = ()
    admin_url: str = ""
    """Of its admin listener; empty where it has none."""
    min_insync_replicas: int | None = None
    """What a new cluster keeps for all brokers from the start; None: nothing."""
    features: Mapping[str, LevelRange] = field(default_factory=lambda: SUPPORTED_FEATURES)
    decoy_secret: bytes = field(default=b"", repr=False)
    """Random: what a cluster gets that has none; empty: it gets none."""
    next_producer_id: int = 0
    """Above all that were given, as far as this broker has seen. A store that was put back knows less, and is raised to
    it."""


class AlreadyRegistered(NamedTuple):
    """This very process holds the session: the answer to an earlier try was lost."""

    epoch: int


def stored_cluster_id(entries: Sequence[Entry]) -> str | None:
    """The id of the cluster whose store this is; None while no broker has registered."""
    return next((entry.value.decode() for entry in entries if entry.key == CLUSTER_ID), None)


def min_isr_of_cluster(min_insync_replicas: int) -> Put:
    """As in Kafka with eligible leader replicas (KIP-966): brokers with other values would contradict each other."""
    return Put(f"{BROKER_CONFIGS}{ALL_BROKERS}", config_value({"min.insync.replicas": str(min_insync_replicas)}))


def register(wanted: Registration, entries: Sequence[Entry], lease_id: int) -> Transaction | AlreadyRegistered:
    """What registers a process, given what the store has; after a Conflict, read and ask again.

    Raises INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION where the cluster works by a level of a feature that the process
    does not support, and DUPLICATE_BROKER_REGISTRATION while another process has the session: the session of a process
    that was killed ends by itself. A process whose session ended keeps its registration and epoch."""
    found = {entry.key: entry for entry in entries}
    stored = stored_cluster_id(entries)
    if stored not in (None, wanted.cluster_id):
        message = (
            f"this broker's data is of cluster {wanted.cluster_id}, the metadata store is that of cluster {stored}"
        )
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    session = found.get(f"{SESSIONS}{wanted.node_id}")
    known = found.get(f"{BROKERS}{wanted.node_id}")
    if session is not None:
        incarnation, _ = session_of(session)
        if incarnation == wanted.incarnation and known is not None:
            return AlreadyRegistered(known.revision)
        message = f"another process is registered as broker {wanted.node_id}"
        raise error_for(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    if stored is not None:
        check_supports_finalized(wanted.features, found.get(FEATURES))
    decided_on = [CLUSTER_ID, FEATURES, DECOY_SECRET, f"{BROKERS}{wanted.node_id}", f"{SESSIONS}{wanted.node_id}"]
    if must_raise_producer_ids(wanted, entries):
        decided_on.append(PRODUCER_IDS)
    return Transaction(
        tuple(Expect(key, found[key].revision if key in found else ABSENT) for key in decided_on),
        tuple(_changes(wanted, found, known, lease_id)),
    )


def must_raise_producer_ids(wanted: Registration, entries: Sequence[Entry]) -> bool:
    """Whether the store would give ids again that were given before it was put back (docs/decisions/0038)."""
    stored = next((next_producer_id_of(entry) for entry in entries if entry.key == PRODUCER_IDS), 0)
    return stored < wanted.next_producer_id


def may_register_alone(wanted: Registration, entries: Sequence[Entry]) -> bool:
    """Whether no other broker is in the cluster, and nothing is left to be done about this broker's earlier life: it
    may be active at once. What it has lost, of partitions that are nowhere else, no broker has (§19.4.3)."""
    own = f"{BROKERS}{wanted.node_id}"
    if any(entry.key == CONTROLLER or (entry.key.startswith(BROKERS) and entry.key != own) for entry in entries):
        return False
    has_lost_data = not wanted.clean_shutdown or any(entry.key.startswith(LOST_DATA) for entry in entries)
    return not has_lost_data or all(
        replicas == (wanted.node_id,)
        for entry in entries
        if entry.key.startswith(PARTITIONS) and wanted.node_id in (replicas := partition_of(entry).replicas)
    )


def register_alone(wanted: Registration, entries: Sequence[Entry], lease_id: int) -> Transaction | AlreadyRegistered:
    """Registered, active and the controller, in one transaction. Where `may_register_alone`; raises as `register`
    does."""
    registered = register(replace(wanted, clean_shutdown=True), entries, lease_id)
    if isinstance(registered, AlreadyRegistered):
        return registered
    session = f"{SESSIONS}{wanted.node_id}"
    lost = f"{LOST_DATA}{wanted.node_id}"
    changes: list[Change] = [change for change in registered.changes if change.key not in (session, lost)]
    changes.append(Put(session, session_value(wanted.incarnation, BrokerState.ACTIVE), lease_id))
    changes.append(Put(CONTROLLER, controller_value(wanted.node_id), lease_id))
    if any(entry.key == lost for entry in entries):
        changes.append(Delete(lost))
    return Transaction((*registered.expected, Expect(CONTROLLER, ABSENT)), tuple(changes))


def activate(broker: BrokerInfo, lease_id: int) -> Transaction:
    """From now on the broker may lead and be in sync; what it had lost does not matter any more."""
    moved = _moved(broker, BrokerState.ACTIVE, lease_id)
    if broker.lost_data:
        moved = moved._replace(changes=(*moved.changes, Delete(f"{LOST_DATA}{broker.node_id}")))
    return moved


def report_log_ends(broker: BrokerInfo, log_ends: Mapping[tuple[bytes, int], LogEnd], lease_id: int) -> Transaction:
    """How far the broker's logs go, of partitions without a possible leader; with its session that is forgotten."""
    key = f"{LOG_ENDS}{broker.node_id}"
    change = Put(key, log_ends_value(log_ends), lease_id) if log_ends else Delete(key)
    return Transaction((Expect(f"{SESSIONS}{broker.node_id}", broker.session_revision),), (change,))


def begin_shutdown(broker: BrokerInfo, lease_id: int) -> Transaction:
    """The controller takes away what the broker leads; when it leads nothing (`controller.may_stop`), it may stop."""
    return _moved(broker, BrokerState.STOPPING, lease_id)


def claim_controller(image: MetadataImage, node_id: int, lease_id: int) -> Transaction:
    """Become the controller where there is none. The revision of the transaction is the controller's epoch."""
    broker = image.brokers[node_id]
    return Transaction(
        (Expect(CONTROLLER, ABSENT), Expect(f"{SESSIONS}{node_id}", broker.session_revision)),
        (Put(CONTROLLER, controller_value(node_id), lease_id),),
    )


def resign_controller(image: MetadataImage) -> Transaction:
    return Transaction((Expect(CONTROLLER, image.controller_epoch),), (Delete(CONTROLLER),))


def unregister(image: MetadataImage, node_id: int) -> Transaction:
    """Forget a broker that will not come back. One that is running registers again. Raises BROKER_ID_NOT_REGISTERED.

    Its replicas stay where they are until a reassignment; that it had lost data is remembered, should it come back."""
    broker = image.brokers.get(node_id)
    if broker is None:
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {node_id}")
    return Transaction(
        (Expect(f"{BROKERS}{node_id}", broker.epoch),),
        (Delete(f"{BROKERS}{node_id}"), Delete(f"{SESSIONS}{node_id}")),
    )


def _changes(wanted: Registration, found: dict[str, Entry], known: Entry | None, lease_id: int) -> list[Change]:
    changes: list[Change] = []
    if CLUSTER_ID not in found:
        changes += (Put(CLUSTER_ID, wanted.cluster_id.encode()), finalize_in_new_cluster(wanted.features))
        if wanted.min_insync_replicas is not None:
            changes.append(min_isr_of_cluster(wanted.min_insync_replicas))
    if wanted.decoy_secret and DECOY_SECRET not in found:
        changes.append(Put(DECOY_SECRET, decoy_secret_value(wanted.decoy_secret)))
    if must_raise_producer_ids(wanted, tuple(found.values())):
        changes.append(Put(PRODUCER_IDS, next_producer_id_value(wanted.next_producer_id)))
    if known is None or broker_of(known).incarnation != wanted.incarnation:
        broker = BrokerInfo(
            wanted.node_id,
            wanted.host,
            wanted.port,
            wanted.rack,
            incarnation=wanted.incarnation,
            listeners=wanted.listeners,
            admin_url=wanted.admin_url,
            features=wanted.features,
        )
        changes.append(Put(f"{BROKERS}{wanted.node_id}", registration_value(broker)))
        # Lost in an earlier life is lost still, if that life has not been active in between.
        if not wanted.clean_shutdown or f"{LOST_DATA}{wanted.node_id}" in found:
            changes.append(Put(f"{LOST_DATA}{wanted.node_id}", b"{}"))
    value = session_value(wanted.incarnation, BrokerState.STARTING)
    changes.append(Put(f"{SESSIONS}{wanted.node_id}", value, lease_id))
    return changes


def _moved(broker: BrokerInfo, state: BrokerState, lease_id: int) -> Transaction:
    assert broker.state is not BrokerState.FENCED, "a session goes on in another state, it does not begin in one"
    assert lease_id != NO_LEASE, "a session without a lease would never end"
    return Transaction(
        (
            Expect(f"{BROKERS}{broker.node_id}", broker.epoch),
            Expect(f"{SESSIONS}{broker.node_id}", broker.session_revision),
        ),
        (Put(f"{SESSIONS}{broker.node_id}", session_value(broker.incarnation, state), lease_id),),
    )
