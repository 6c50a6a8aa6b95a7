"""franz-go, where Go and the module can be had."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from ottla import BrokerThread
from tests.clients.go_programs import built
from tests.conftest import QUICK_GROUPS
from tests.served import ServedBroker
from tests.simulation.cluster.small_epochs import small_epochs

SOURCES = Path(__file__).parent / "go"
SCENARIO_WITHIN_S = 60
SUITE_WITHIN_S = 600


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(SOURCES, tmp_path_factory.mktemp("go"))


def said(broker: ServedBroker, program: Path) -> Any:
    command = [str(program), broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_WITHIN_S)
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{getattr(broker, 'stderr', '')[-3000:]}"
    return json.loads(done.stdout)


def test_franz_go_rebalances_cooperatively_and_reads_all_once(broker: ServedBroker, programs: Path) -> None:
    assert said(broker, programs / "franzgo") == {
        "distinct": 6000,
        "repeated": 0,
        "out_of_order": 0,
        "committed": 6000,
        "members_at_work": 3,
    }


def test_franz_go_copies_in_transactions_of_a_group(broker: ServedBroker, programs: Path) -> None:
    """Every third transaction is aborted, and its records come again; each is copied once, in order."""
    found = said(broker, programs / "transact")

    assert found.pop("aborted") > 1
    assert found == {"copied": list(range(120)), "uncommitted": 120}


def test_tx20_franz_go_goes_on_with_other_producer_ids(programs: Path) -> None:
    """KIP-890: an EndTxn whose producer epochs are used up is answered with the next id and epoch 0."""
    settings = QUICK_GROUPS | {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with small_epochs(are_drawn=True), BrokerThread(settings=settings) as broker:
        found: Any = said(broker, programs / "transact")  # type: ignore[arg-type]
        asker = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        place = TopicPartition("out", 0)
        producers = {each.producer_id for each in asker.describe_producers([place])[place].active_producers}
        asker.close()

    assert found["copied"] == list(range(120))
    assert len(producers) > 1


@pytest.mark.skipif("OTTLA_KGO" not in os.environ, reason="`make nightly` runs it: Go builds the suite for a minute")
@pytest.mark.timeout(SUITE_WITHIN_S)
@pytest.mark.parametrize("brokers", [1, 3])
def test_transactions_of_franz_go_s_own_suite_pass(tmp_path: Path, programs: Path, brokers: int) -> None:
    """A chain of groups that copy in transactions, each with members that give up in the middle of one."""
    command = ["go", "test", "-count=1", "-run", "^TestTxnEtl$", "github.com/twmb/franz-go/pkg/kgo"]
    with ServedBroker(tmp_path / "data", QUICK_GROUPS, arguments=["--brokers", str(brokers)]) as served:
        settings = {"SEEDS": served.bootstrap, "TEST_RF": str(brokers), "TEST_RECORDS": "50000", "TEST_UNSAFE": "1"}
        environment = os.environ | {f"KGO_{name}": value for name, value in settings.items()}
        done = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{served.stderr[-3000:]}"
