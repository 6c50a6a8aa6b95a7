"""Properties that were altered at run time, and that another version of a broker may have stored."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.config.server import ServerConfig
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.cluster.encoding import ALL_BROKERS, BROKER_CONFIGS, config_value
from ottla.cluster.store import Changes, Entry

NODE_ID = 1


class Broker:
    """What is stored, and what the configuration of broker 1 makes of it."""

    def __init__(self) -> None:
        self.warnings: list[dict[str, Any]] = []
        self.config = ServerConfig()
        log: Any = SimpleNamespace(metadata=SimpleNamespace(warning=self._warn))
        runtime: Any = SimpleNamespace(node_id=NODE_ID, config=self.config, log=log)
        self.dynamic = DynamicConfigs(runtime)
        self._revision = 0

    def _warn(self, event: str, **fields: Any) -> None:
        self.warnings.append({"event": event, **fields})

    def store(self, owner: str, **values: str) -> None:
        self._revision += 1
        written = config_value({name.replace("_", "."): text for name, text in values.items()})
        entry = Entry(BROKER_CONFIGS + owner, written, self._revision)
        self.dynamic.take(Changes(self._revision, (entry,), ()))
        assert self.dynamic.apply_changes()


@pytest.mark.parametrize("owner", [str(NODE_ID), ALL_BROKERS])
def test_what_this_version_does_not_take_has_no_effect(owner: str) -> None:
    broker = Broker()
    broker.store(owner, log_retention_ms="0", log_retention_bytes="1000", of_the_future="x")

    assert (broker.config.log_retention_ms, broker.config.log_retention_bytes) == (None, 1000)
    assert [each["name"] for each in broker.warnings] == ["log.retention.ms", "of.the.future"]
    assert broker.warnings[0]["why"] == "log.retention.ms=0: expected a whole number of at least 1, or -1"


def test_what_is_stored_stays_and_may_be_put_right() -> None:
    broker = Broker()
    broker.store(ALL_BROKERS, log_retention_ms="0")
    assert broker.dynamic.values_of(ALL_BROKERS) == {"log.retention.ms": "0"}

    broker.store(ALL_BROKERS, log_retention_ms="5")
    assert broker.config.log_retention_ms == 5
    assert len(broker.warnings) == 1
