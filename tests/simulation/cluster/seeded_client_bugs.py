"""Seeded bugs that slow readers, topic ids and hostile clients find.

Each is a function that is handed pytest's monkeypatch, as in `seeded_bugs.py`. `docs/seeded-bugs.md` lists them.
"""

from collections.abc import Callable
from typing import Any

from ottla.broker.handlers import fetch
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection import Connection
from ottla.broker.server.socket_server import Server
from ottla.cluster.image import MetadataImage
from ottla.protocol.messages.fetch import FetchTopic
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.replication.partition import Partition
from ottla.storage import validation

Patch = Any


def handles_requests_of_who_reads_nothing(patch: Patch) -> None:
    """Whatever has not been read yet, more answers are built."""
    patch.setattr(Connection, "pause_writing", lambda self: None)


def keeps_connections_of_idle_clients_half_closed(patch: Patch) -> None:
    """Who is closed with answers that it does not read stays for ever: nothing aborts it."""
    closing = Server.closing

    def without_deadline(self: Server, connection: Any, *why: Any) -> None:
        closing(self, connection, *why)
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
            connection.idle_timer = None

    patch.setattr(Server, "closing", without_deadline)


def keeps_sessions_attached(patch: Patch) -> None:
    """A fetch session goes on to belong to the connection that was lost."""
    patch.setattr(FetchSessionCache, "connection_lost", lambda *_: False)


def serves_an_old_id_from_the_topic_of_that_name(patch: Patch) -> None:
    """A topic id is a way to its name, and the name finds the records."""
    target, names = fetch._target, dict[bytes, str]()

    def by_name(image: MetadataImage, topic: Any, asked: Any, uses_topic_ids: bool) -> Any:
        known = image.topic_by_id(topic.topic_id)
        if known is not None:
            names[topic.topic_id] = known.name
        now = image.topic(names.get(topic.topic_id, ""))
        if uses_topic_ids and known is None and now is not None:
            topic = FetchTopic(topic_id=now.topic_id, partitions=topic.partitions)
        return target(image, topic, asked, uses_topic_ids)

    patch.setattr(fetch, "_target", by_name)


def believes_in_leader_epochs_of_the_future(patch: Patch) -> None:
    """Who knows of a later leader is answered as if it was this one."""
    check_epoch = Partition.check_epoch
    patch.setattr(Partition, "check_epoch", lambda self, epoch: check_epoch(self, min(epoch, self.leader_epoch)))


def writes_damaged_batches(patch: Patch) -> None:
    """What is not plain is written without a look at its checksum."""
    patch.setattr(validation, "crc_is_valid", lambda *_: True)


def waits_behind_requests_that_it_does_not_serve(patch: Patch) -> None:
    """Neither an answer nor an end: the connection is forgotten."""
    close = Connection.close

    def close_others(self: Connection, reason: CloseReason, why: str | None) -> None:
        if reason is not CloseReason.NOT_SERVED:
            close(self, reason, why)

    patch.setattr(Connection, "close", close_others)


SEEDED_CLIENT_BUGS: dict[str, Callable[[Patch], None]] = {
    "handles requests of who reads nothing": handles_requests_of_who_reads_nothing,
    "keeps connections of idle clients half closed": keeps_connections_of_idle_clients_half_closed,
    "keeps fetch sessions attached": keeps_sessions_attached,
    "believes in leader epochs of the future": believes_in_leader_epochs_of_the_future,
    "writes damaged batches": writes_damaged_batches,
    "waits behind requests that it does not serve": waits_behind_requests_that_it_does_not_serve,
    "serves an old id from the topic of that name": serves_an_old_id_from_the_topic_of_that_name,
}
