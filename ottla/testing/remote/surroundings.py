"""Links and disks of brokers in another process."""

from typing import Any

from ottla.testing.control.surroundings_documents import DiskDocument, LinkList
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.surroundings.disks import BrokerDisk, DiskError, DiskFaults, check_operation
from ottla.testing.surroundings.links import LinkError, Links, check_bandwidth, check_ends, check_way
from ottla.testing.surroundings.ways import LinkState, Place


class RemoteLinks(Links):
    """Each method returns when what it does is in force."""

    def __init__(self, control: RemoteControl) -> None:
        self._control = control

    def cut(self, one: Place, other: Place | None = None, *, to: Place | None = None, reset: bool = False) -> None:
        self._put_way("cut", one, other, to, reset=reset)

    def delay(self, one: Place, other: Place | None = None, *, to: Place | None = None, ms: float) -> None:
        self._put_way("delay", one, other, to, ms=ms)

    def bandwidth(self, one: Place, other: Place | None = None, *, to: Place | None = None, bytes_per_s: float) -> None:
        check_bandwidth(bytes_per_s)
        self._put_way("bandwidth", one, other, to, bytes_per_s=bytes_per_s)

    def lossless_pause(self, one: Place, other: Place | None = None, *, to: Place | None = None) -> None:
        self._put_way("pause", one, other, to)

    def in_force(self) -> list[tuple[Place, Place, LinkState]]:
        found: LinkList = self._control.read(LinkList, "GET", "/v1/links")
        return [
            (
                each.from_,
                each.to,
                LinkState(each.is_cut, each.resets, each.is_paused, each.delay_ms, each.bytes_per_s),
            )
            for each in found.links
        ]

    def heal(self, *places: Place) -> None:
        check_ends(places)
        self._put({"do": "heal", "ends": list(places)})

    def isolate(self, node_id: int) -> None:
        self._put({"do": "isolate", "node": node_id})

    def _put_way(self, do: str, one: Place, other: Place | None, to: Place | None, **options: Any) -> None:
        check_way(do, one, other, to)
        way = {"from": one, "to": to} if other is None else {"between": [one, other]}
        self._put({"do": do, **way, **options})

    def _put(self, body: dict[str, Any]) -> None:
        try:
            self._control.ask("PUT", "/v1/links", body)
        except ValueError as error:
            raise LinkError(str(error)) from None


class RemoteDisk(BrokerDisk):
    """Each method returns when what it does is in force."""

    def __init__(self, control: RemoteControl, node_id: int) -> None:
        self._control = control
        self._path = f"/v1/disks/{node_id}"

    def in_force(self) -> DiskFaults:
        found: DiskDocument = self._control.read(DiskDocument, "GET", self._path)
        return DiskFaults(found.room_bytes, found.fsync_ms, tuple(found.failures), found.is_stalled)

    def full(self, *, after_bytes: int = 0) -> None:
        self._put("full", after_bytes=after_bytes)

    def slow_fsync(self, ms: float) -> None:
        self._put("slow_fsync", ms=ms)

    def fail(self, operation: str, *, match: str = "*", times: int | None = 1) -> None:
        check_operation(operation)
        self._put("fail", operation=operation, match=match, times=times)

    def stall(self) -> None:
        self._put("stall")

    def heal(self) -> None:
        self._put("heal")

    def corrupt(self, topic: str, partition: int, *, offset: int) -> None:
        self._put("corrupt", topic=topic, partition=partition, offset=offset)

    def tear_tail(self, size: int, *, match: str = "*") -> None:
        self._put("tear_tail", bytes=size, match=match)

    def lose_unsynced(self) -> None:
        self._put("lose_unsynced")

    def _put(self, do: str, **options: Any) -> None:
        try:
            self._control.ask("PUT", self._path, {"do": do, **options})
        except ValueError as error:
            raise DiskError(str(error)) from None
