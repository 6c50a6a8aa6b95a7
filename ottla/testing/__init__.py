"""For users' tests: brokers and clusters inside the test process, a handle that shows what happens in them, and what
the fixtures of the pytest plugin are made of.

    with ottla.testing.broker() as kafka: ...
    orders_kafka = ottla.testing.broker_fixture("orders_kafka", topics={"orders": 3})
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.protocol.records.record import Record
    from ottla.testing.async_handle import KafkaAsync, KafkaGroupAsync
    from ottla.testing.audit.findings import AuditFinding
    from ottla.testing.fixtures import broker_fixture
    from ottla.testing.group_handle import KafkaGroup
    from ottla.testing.handle import Kafka
    from ottla.testing.remote.asking import NotServedHere
    from ottla.testing.remote.async_handle import RemoteKafkaAsync
    from ottla.testing.remote.async_parts import RemoteGroupAsync, RemotePartitionAsync
    from ottla.testing.scripts import KafkaTestCase, broker
    from ottla.testing.seeds.seed_schema import SeedError
    from ottla.testing.snapshots.snapshots import SnapshotError
    from ottla.testing.step_lists.handles import KafkaScript
    from ottla.testing.step_lists.steps import ScriptError
    from ottla.testing.surroundings.disks import BrokerDisk, DiskError
    from ottla.testing.surroundings.handles import KafkaBroker, KafkaBrokerAsync, KafkaPartition, KafkaPartitionAsync
    from ottla.testing.surroundings.links import LinkError, Links
    from ottla.testing.topic_handle import KafkaTopic
    from ottla.testing.waits import DeadlineExceeded
    from ottla.testing.wire_capture.file_format import CaptureError
    from ottla.testing.wire_capture.recording import CaptureWarning, WireCapture, WireCaptureAsync

__all__ = [
    "AuditFinding",
    "BrokerDisk",
    "CaptureError",
    "CaptureWarning",
    "DeadlineExceeded",
    "DiskError",
    "Kafka",
    "KafkaAsync",
    "KafkaBroker",
    "KafkaBrokerAsync",
    "KafkaGroup",
    "KafkaGroupAsync",
    "KafkaPartition",
    "KafkaPartitionAsync",
    "KafkaScript",
    "KafkaTestCase",
    "KafkaTopic",
    "LinkError",
    "Links",
    "NotServedHere",
    "Record",
    "RemoteGroupAsync",
    "RemoteKafkaAsync",
    "RemotePartitionAsync",
    "ScriptError",
    "SeedError",
    "SnapshotError",
    "WireCapture",
    "WireCaptureAsync",
    "broker",
    "broker_fixture",
]

_EXPORTS = {
    "CaptureError": "ottla.testing.wire_capture.file_format",
    "CaptureWarning": "ottla.testing.wire_capture.recording",
    "BrokerDisk": "ottla.testing.surroundings.disks",
    "DiskError": "ottla.testing.surroundings.disks",
    "KafkaBroker": "ottla.testing.surroundings.handles",
    "KafkaBrokerAsync": "ottla.testing.surroundings.handles",
    "KafkaPartition": "ottla.testing.surroundings.handles",
    "KafkaPartitionAsync": "ottla.testing.surroundings.handles",
    "LinkError": "ottla.testing.surroundings.links",
    "Links": "ottla.testing.surroundings.links",
    "DeadlineExceeded": "ottla.testing.waits",
    "AuditFinding": "ottla.testing.audit.findings",
    "Kafka": "ottla.testing.handle",
    "KafkaAsync": "ottla.testing.async_handle",
    "KafkaGroup": "ottla.testing.group_handle",
    "KafkaGroupAsync": "ottla.testing.async_handle",
    "KafkaScript": "ottla.testing.step_lists.handles",
    "KafkaTestCase": "ottla.testing.scripts",
    "KafkaTopic": "ottla.testing.topic_handle",
    "NotServedHere": "ottla.testing.remote.asking",
    "RemoteGroupAsync": "ottla.testing.remote.async_parts",
    "RemoteKafkaAsync": "ottla.testing.remote.async_handle",
    "RemotePartitionAsync": "ottla.testing.remote.async_parts",
    "Record": "ottla.protocol.records.record",
    "ScriptError": "ottla.testing.step_lists.steps",
    "SeedError": "ottla.testing.seeds.seed_schema",
    "SnapshotError": "ottla.testing.snapshots.snapshots",
    "WireCapture": "ottla.testing.wire_capture.recording",
    "WireCaptureAsync": "ottla.testing.wire_capture.recording",
    "broker": "ottla.testing.scripts",
    "broker_fixture": "ottla.testing.fixtures",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: `ottla.Broker` comes by way of this package too, and needs none of it.
    if name in _EXPORTS:
        from importlib import import_module

        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
