"""Settings that suit tests, and what clients of each library are given to go with them.

The profile `test` makes groups form at once and internal topics small; `kafka` is Kafka's defaults untouched.
Retention, sizes, timestamps and the automatic creation of topics stay Kafka's in both: a test must not pass here and
fail there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ottla.broker.config.options import ConfigError

TEST_SETTINGS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "broker.session.timeout.ms": 1000,
        "broker.heartbeat.interval.ms": 300,
        "log.segment.delete.delay.ms": 0,
        "log.cleaner.backoff.ms": 100,
    }
)
PROFILES: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType({"test": TEST_SETTINGS, "kafka": {}})
LAXER: Final = ("group.min.session.timeout.ms",)
"""Settings of the profile `test` with which a test may pass that fails with Kafka's."""

# In milliseconds but for kafka-python's and aiokafka's, which have the same names for the same.
_QUICK_PYTHON = {"metadata_max_age_ms": 5000, "retry_backoff_ms": 20}
_CLIENTS: Final[Mapping[str, Mapping[str, Mapping[str, object]]]] = MappingProxyType(
    {
        "confluent-kafka": {
            "common": {
                "metadata.max.age.ms": 5000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "retry.backoff.ms": 20,
            },
            "producer": {"linger.ms": 0},
            "consumer": {"heartbeat.interval.ms": 500, "auto.offset.reset": "earliest"},
        },
        "kafka-python": {
            "common": {**_QUICK_PYTHON, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 200},
            "producer": {},
            "consumer": {"heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"},
        },
        "aiokafka": {
            "common": _QUICK_PYTHON,
            "producer": {},
            "consumer": {"heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"},
        },
        "java": {
            "common": {"metadata.max.age.ms": 5000, "reconnect.backoff.ms": 10, "retry.backoff.ms": 20},
            "producer": {"linger.ms": 0},
            "consumer": {"heartbeat.interval.ms": 500, "auto.offset.reset": "earliest"},
        },
    }
)
_BOOTSTRAP = {"kafka-python": "bootstrap_servers", "aiokafka": "bootstrap_servers"}


def profile_settings(name: str) -> Mapping[str, object]:
    """Raises ConfigError."""
    if name not in PROFILES:
        raise ConfigError(f"profile={name!r}: expected one of {', '.join(PROFILES)}")
    return PROFILES[name]


def cluster_settings(brokers: int) -> Mapping[str, object]:
    """What several brokers have beside the profile `test`: topics with up to three replicas, so that a broker that is
    killed takes nothing with it."""
    if brokers == 1:
        return {}
    replicas, in_sync = min(brokers, 3), 2
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def client_config(kind: str, library: str, bootstrap: str) -> dict[str, Any]:
    """What a `producer` or a `consumer` of a library takes, in that library's names: the address, short back-offs and
    heartbeats, and for a consumer the first record as the place to begin. Raises ConfigError."""
    if library not in _CLIENTS:
        raise ConfigError(f"library={library!r}: expected one of {', '.join(_CLIENTS)}")
    if kind not in ("producer", "consumer"):
        raise ConfigError(f"{kind!r}: expected producer or consumer")
    made = _CLIENTS[library]
    return {_BOOTSTRAP.get(library, "bootstrap.servers"): bootstrap, **made["common"], **made[kind]}
