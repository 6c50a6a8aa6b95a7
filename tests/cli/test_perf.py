"""`ottla perf`."""

import pytest

from ottla import BrokerThread
from ottla.cli.operations.perf import Measured
from ottla.testing.faults import Error
from tests.cli.embedded import json_of, output_of, run_at


def test_rates_and_latencies_of_what_was_produced_and_consumed() -> None:
    with BrokerThread() as broker:
        produced = json_of(broker, "perf", "produce", "speed", "--records", "50", "--record-size", "100")
        consumed = json_of(broker, "perf", "consume", "speed")
        few = json_of(broker, "perf", "consume", "speed", "--records", "20")
        slow = json_of(broker, "perf", "produce", "speed", "--records", "3", "--throughput", "50")
        sentence = output_of(broker, "perf", "produce", "speed", "--records", "1")

    assert (produced["records"], produced["bytes"], consumed["records"], consumed["bytes"]) == (50, 5000, 50, 5000)
    assert produced["latency_ms"]["p50"] <= produced["latency_ms"]["p99"] <= produced["latency_ms"]["max"]
    assert few["records"] == 20
    assert slow["seconds"] >= 0.04
    assert sentence.startswith("1 records sent in ")


@pytest.mark.parametrize("command", [("perf", "produce", "speed", "--records", "1000"), ("produce", "speed")])
def test_full_disk_is_named_when_the_client_has_no_room_for_more(command: tuple[str, ...]) -> None:
    with BrokerThread() as broker:
        output_of(broker, "topics", "create", "speed")
        with broker.faults.fault(api="Produce", do=Error("KAFKA_STORAGE_ERROR"), times="unlimited"):
            result = run_at(broker, *command, "--request-timeout", "1", stdin=f"{'x' * 1000}\n" * 1000)

    assert result.exit_code == 1
    assert result.stderr.endswith("the broker could not write to its disk, which may be full; its log says why\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("size", "exit_code", "sentence"),
    [
        (
            str(1 << 40),
            2,
            "Error: Invalid value for '--record-size': 1099511627776 is not in the range 0<=x<=134217728.",
        ),
        (str(2 << 20), 1, "Error: cannot produce to speed: [Error 10] MessageSizeTooLargeError"),
    ],
)
def test_record_that_no_broker_takes_is_refused(size: str, exit_code: int, sentence: str) -> None:
    with BrokerThread() as broker:
        result = run_at(broker, "perf", "produce", "speed", "--records", "1", "--record-size", size)

    assert result.exit_code == exit_code
    assert result.stderr.splitlines()[-1] == sentence


@pytest.mark.parametrize(("percentile", "latency_ms"), [(50, 2), (75, 3), (99, 4), (100, 4), (0, 1)])
def test_percentile_is_a_latency_that_was_measured(percentile: float, latency_ms: int) -> None:
    assert Measured(latencies_s=[0.004, 0.001, 0.003, 0.002]).latency_ms(percentile) == latency_ms
