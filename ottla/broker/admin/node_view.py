"""What only the broker itself knows of its clients, for `/api/v1/node/*` (docs/operators.md §2.5): Kafka's protocol has
no request that asks for it.

Rows are made in slices, with the loop free between them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from ottla.broker.admin.health import BrokerLife
from ottla.broker.admin.metrics.request_source import HOLDS
from ottla.broker.coordinators.hosted_partition import HostedPartition
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import LoopRuntime, next_step
from ottla.broker.server.connection import Connection
from ottla.broker.server.connection_interfaces import NS_PER_MS
from ottla.broker.server.socket_server import Server
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.member import Member
from ottla.coordinator.group_shard import GroupShard

# An answer has so many rows at most; each is some 300 bytes.
ROWS_MAX = 10_000
# A row takes some 5 µs. What is looked at without a row counts as well.
ROWS_PER_STEP = 200

Rows: TypeAlias = Iterator[dict[str, object] | None]
"""None for what has no row: the slices count it all the same."""


class LoadingPartitions(Protocol):
    def loading(self) -> Sequence[HostedPartition[Any]]: ...


class LoadedGroups(LoadingPartitions, Protocol):
    def loaded_shards(self) -> list[GroupShard]: ...


class NodeView:
    def __init__(
        self,
        runtime: LoopRuntime,
        server: Server,
        replicas: ReplicaManager,
        groups: LoadedGroups,
        transactions: LoadingPartitions,
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._replicas = replicas
        self._groups = groups
        self._transactions = transactions

    def connections(self) -> Rows:
        for connection in list(self._server.connections):
            client = connection.client
            yield {
                **self._peer(connection),
                "client_id": None if client is None else client.client_id,
                # Clients say it since ApiVersions v3.
                "software_name": None if client is None else client.software_name or None,
                "software_version": None if client is None else client.software_version or None,
                "held_by": [name for hold, name in HOLDS.items() if connection.holds & hold],
                "silent_ms": self._runtime.clock.now_ms() - connection.last_event_ns // NS_PER_MS,
            }

    def requests(self) -> Rows:
        """Those that are parked, and those that are answered and wait for one that is parked."""
        for connection in list(self._server.connections):
            yield None
            for context in connection.parked:
                yield {
                    **self._peer(connection),
                    "client_id": context.client_id,
                    "api": context.route.api.name,
                    "version": context.api_version,
                    "bytes": context.size_bytes,
                    "waited_ms": self._runtime.clock.now_ms() - context.began_ns // 1_000_000,
                    "is_answered": context.frame is not None,
                }

    def members(self) -> Rows:
        for shard in self._groups.loaded_shards():
            for group in list(shard.groups.values()):
                yield None
                for member in list(group.members.values()):
                    yield self._member(group, member)

    def _member(self, group: ClassicGroup, member: Member) -> dict[str, object]:
        waits_for = "join" if member.parked_join is not None else "sync" if member.parked_sync is not None else None
        remaining_ms = member.session_deadline_ms - self._runtime.broker_clock.now_ms()
        return {
            "broker": self._runtime.node_id,
            "group": group.group_id,
            "state": group.state.value,
            "generation": group.generation,
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "waits_for": waits_for,
            # While it waits it sends no heartbeats.
            "silent_ms": None if waits_for else member.session_timeout_ms - remaining_ms,
            "session_timeout_ms": member.session_timeout_ms,
        }

    def loading(self) -> list[dict[str, object]]:
        """How far the logs of coordinators have been read that are loaded now."""
        return [self._loading(each) for each in (*self._groups.loading(), *self._transactions.loading())]

    def _loading(self, hosted: HostedPartition[Any]) -> dict[str, object]:
        replica = self._replicas.find(hosted.topic, hosted.index)
        return {
            "topic": hosted.topic,
            "partition": hosted.index,
            "since_ms": self._runtime.clock.now_ms() - hosted.began_ms,
            "offset": hosted.loaded_offset,
            "end_offset": None if replica is None else replica.log.log_end_offset,
        }

    def _peer(self, connection: Connection) -> dict[str, object]:
        transport = connection.transport
        address: Sequence[object] | None = None if transport is None else transport.get_extra_info("peername")
        return {
            "broker": self._runtime.node_id,
            "listener": connection.listener_name,
            "host": connection.peer_host,
            "port": None if address is None else address[1],
        }


def progress(node_id: int, life: BrokerLife, view: NodeView | None) -> dict[str, object]:
    """Of the start: the data directory is opened, then coordinators are loaded. `view` is None before that."""
    return {
        "broker": node_id,
        "phase": life.phase.value,
        "logs_opened": life.recovery.logs_opened,
        "logs_total": life.recovery.logs_total,
        "bytes_checked": life.recovery.bytes_checked,
        "loading": [] if view is None else view.loading(),
    }


async def listed(name: str, views: Iterable[Rows]) -> list[bytes]:
    """A JSON object with the rows under this name, and how many were left out."""
    pieces: list[bytes] = [f'{{"{name}": ['.encode()]
    lines: list[str] = []
    rows = left_out = 0
    for looked_at, row in enumerate((row for view in views for row in view), 1):
        if row is not None and rows < ROWS_MAX:
            lines.append(f"{',' if rows else ''}\n{json.dumps(row)}")
            rows += 1
        elif row is not None:
            left_out += 1
        if looked_at % ROWS_PER_STEP == 0:
            pieces.append("".join(lines).encode())
            lines.clear()
            await next_step()
    return [*pieces, "".join(lines).encode(), f'\n], "left_out": {left_out}}}\n'.encode()]
