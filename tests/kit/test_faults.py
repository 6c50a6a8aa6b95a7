"""Fault rules by way of the fixtures and the handle: what a test with them says at its end."""

import asyncio

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.testing import DeadlineExceeded
from ottla.testing.handle import Kafka
from ottla.testing.scripts import broker
from ottla.testing.testbed import Testbed
from tests.kit.members import consumer, polled, send

pytest_plugins = ("pytester",)

PRODUCE = """
    def produce(kafka):
        from confluent_kafka import Producer

        outcomes = []
        producer = Producer(kafka.client_config("producer"))
        producer.produce("orders", b"book", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(10)
        return outcomes
"""


def run(pytester: pytest.Pytester, test: str, *arguments: str) -> pytest.RunResult:
    pytester.makeconftest("")
    pytester.makepyfile(PRODUCE + test)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_rule_that_acted_leaves_no_trace(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
    def test_refused(kafka):
        kafka.create_topic("orders")
        with kafka.fault(api="Produce", topic="orders", do={"error": "NOT_ENOUGH_REPLICAS"}, times=2) as rule:
            assert produce(kafka) == [None]
        assert rule.hits == 2
        assert [record.value for record in kafka.records("orders")] == [b"book"]

    def test_next(kafka, kafka_faults):
        assert len(kafka_faults) == 0
        kafka.create_topic("orders")
        assert produce(kafka) == [None]
    """,
        "--ottla-seed=7",
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["ottla: fault rules, --ottla-seed=7"])


UNUSED = """
    def test_refuses_another_topic(kafka):
        kafka.create_topic("orders")
        kafka.fault(api="Produce", topic="order", do={"error": "NOT_ENOUGH_REPLICAS"}, id="refuse")
        assert produce(kafka) == [None]
"""


def test_a_rule_that_never_acted_is_an_error_of_the_test(pytester: pytest.Pytester) -> None:
    """TK22: with the field that kept it from acting."""
    result = run(pytester, UNUSED)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*refuse*topic*"])


@pytest.mark.parametrize(("mode", "warnings"), [("warn", 1), ("ignore", 0)])
def test_unused_rules_may_be_warned_of_or_ignored(pytester: pytest.Pytester, mode: str, warnings: int) -> None:
    result = run(pytester, UNUSED, "-o", f"ottla_unused_faults={mode}", "-W", "always::pytest.PytestWarning")
    result.assert_outcomes(passed=1, warnings=warnings)


def test_a_failing_test_shows_rules_and_no_second_error(pytester: pytest.Pytester) -> None:
    result = run(pytester, UNUSED.replace("== [None]", "== []"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ottla: faults*", "*refuse*"])


FAILING = """
    from ottla.testing.faults import Call, Error

    async def raises(request, proceed):
        raise ValueError("no book")

    async def returns(request, proceed):
        return 3

    async def returns_what_cannot_be_sent(request, proceed):
        response = await proceed()
        response.responses[0].name = 3
        return response

    def test_of_a_function(kafka):
        kafka.create_topic("orders")
        kafka.fault(id="mine", api="Produce", RULE, times=1)
        produce(kafka)
        kafka.fault(id="unused", api="Fetch", do="observe")

    def test_next(kafka):
        assert kafka.topics == []
"""


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("when=lambda request: request.body.nope, do='hold'", "AttributeError: 'ProduceRequest' object has no attrib*"),
        ("do=Call(raises)", "ValueError: no book (*.py:*)"),
        ("do=Call(lambda request, proceed: None)", "TypeError: *NoneType*"),
        ("do=Call(returns)", "TypeError: it returned 3, expected a ProduceResponse or None (*"),
        ("do=Call(returns_what_cannot_be_sent)", "*"),
    ],
    ids=["when", "raises", "no-coroutine", "no-response", "not-encoded"],
)
def test_function_that_fails_is_an_error_of_the_test(pytester: pytest.Pytester, rule: str, sentence: str) -> None:
    """The rest of its end is done: other rules are judged, and the next test has an empty broker."""
    result = run(pytester, FAILING.replace("RULE", rule))
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines([f"'mine' (* its function raised {sentence}", "'unused' (*"])
    result.stdout.no_fnmatch_line("*recorder.py*")


def test_rules_of_a_file_hold_from_the_begin(pytester: pytest.Pytester) -> None:
    """Beside the test, named by the marker."""
    pytester.path.joinpath("rules.json").write_text(
        '{"rules": [{"match": {"api": "Produce"}, "do": {"error": "NOT_ENOUGH_REPLICAS"}}]}'
    )
    result = run(
        pytester,
        """
    import pytest

    @pytest.mark.kafka(topics={"orders": 1}, faults="rules.json")
    def test_refused_once(kafka):
        assert produce(kafka) == [None]
        assert [rule.hits for rule in kafka.faults] == [1]
    """,
    )
    result.assert_outcomes(passed=1)


def test_rules_by_chance_follow_the_seed_of_the_session(pytester: pytest.Pytester) -> None:
    """Workers have it too."""
    test = """
    import pytest

    @pytest.mark.parametrize("run", [1, 2])
    def test_refuses_some(kafka, run):
        topic = kafka.create_topic("orders", partitions=1)
        with kafka.fault(api="Produce", do={"drop": "response"}, probability=0.5, times=100, id="lost"):
            assert kafka.faults.seed == 11
    """
    run(pytester, test, "--ottla-seed=11").assert_outcomes(passed=2)
    run(pytester, test, "--ottla-seed=11", "-n", "2").assert_outcomes(passed=2)


def test_a_reset_removes_rules(handle: Kafka) -> None:
    handle.fault(api="Metadata", do="observe")
    handle.reset()
    assert len(handle.faults) == 0
    assert handle.faults.unused() == []


@pytest.mark.parametrize("is_async", [False, True])
def test_wait_for_hits_is_a_wait_like_all(monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
    """Its deadline, the factor of the environment, and the hints."""
    monkeypatch.setenv("OTTLA_DEADLINE_FACTOR", "4")
    with broker(deadline=0.01) as kafka:
        kafka.clock.freeze()
        rule = kafka.fault(api="Produce", do="observe", optional=True)

        def wait(within: float | None) -> None:
            if is_async:
                asyncio.run(rule.wait_async(within=within))
            else:
                rule.wait(within=within)

        for within, waited_s in ((None, 0.04), (0.02, 0.08)):
            with pytest.raises(DeadlineExceeded) as late:
                wait(within)
            assert (late.value.within_s, late.value.missing) == (waited_s, ("1 of 1 hits",))
            assert "broker time is frozen" in late.value.hints[-1]


def test_the_asynchronous_handle_has_the_same_rules() -> None:
    async def ask() -> list[int]:
        from aiokafka import AIOKafkaProducer

        async with broker(topics={"orders": 1}, fault_seed=3) as kafka:
            rule = kafka.fault(api="Produce", do={"error": "NOT_LEADER_OR_FOLLOWER"})
            async with AIOKafkaProducer(**kafka.client_config("producer")) as producer:
                await producer.send_and_wait("orders", b"book")
            await rule.wait_async()
            assert kafka.faults.seed == 3
            return [rule.hits, len(await kafka.records("orders"))]

    assert asyncio.run(ask()) == [1, 1]


def test_rules_stay_when_a_broker_of_a_cluster_starts_again() -> None:
    with broker(brokers=2) as kafka:
        rule = kafka.fault(api="Produce", do={"error": ErrorCode.NOT_ENOUGH_REPLICAS.name}, optional=True)
        kafka.brokers[1].restart()
        assert rule in kafka.faults


def answers_to(bed: Testbed, api: str) -> list[int | None]:
    """What clients were answered, the oldest first; None for no answer."""
    return [event.error for event in bed.wire.since(0) if event.api == api]


@pytest.mark.parametrize("delay", [[], [{"delay": 5}]], ids=["at once", "later"])
@pytest.mark.parametrize("after", [False, True])
def test_answers_that_rules_put_in_are_on_the_wire(
    bed: Testbed, handle: Kafka, delay: list[dict[str, int]], after: bool
) -> None:
    """TK 17.1: as the client is given them, and not as they would have been without rules."""
    handle.create_topic("orders", partitions=1)
    before = len(answers_to(bed, "Produce"))
    for do in delay:
        handle.fault(api="Produce", do=do)
    handle.fault(api="Produce", do={"error": "NOT_ENOUGH_REPLICAS", "after": after})

    send(handle, "orders", b"book")

    assert answers_to(bed, "Produce")[before:] == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]


@pytest.mark.parametrize("do", [{"drop": "response"}, {"drop": "request"}, {"disconnect": "before"}], ids=str)
def test_requests_without_answer_are_on_the_wire(bed: Testbed, handle: Kafka, do: dict[str, str]) -> None:
    handle.create_topic("orders", partitions=1)
    before = len(answers_to(bed, "Produce"))
    handle.fault(api="Produce", do=do)

    send(handle, "orders", b"book", **{"socket.timeout.ms": 500})

    assert answers_to(bed, "Produce")[before:] == [None, ErrorCode.NONE]


def test_records_of_a_delayed_answer_count_as_consumed(handle: Kafka) -> None:
    """A fetch that waits for records, and whose answer a rule holds up."""
    handle.create_topic("orders", partitions=1)
    handle.fault(api="Fetch", do={"delay": 5}, times=1000)
    with consumer(handle, "shop", "orders", **{"fetch.wait.max.ms": 5000}) as shop:
        while not any("Fetch" in each.apis and each.in_flight for each in handle.connections):
            shop.poll(0.05)
        handle.produce("orders", [b"book"])
        assert polled(shop, 1) == [b"book"]
        handle.wait_until_consumed("orders")


def test_records_of_a_lost_answer_do_not_count_as_consumed(handle: Kafka) -> None:
    handle.produce("orders", [b"book"])
    rule = handle.fault(api="Fetch", do={"drop": "response"}, times=1000)
    with consumer(handle, "shop", "orders") as shop:
        while not rule.hits:
            shop.poll(0.05)
        with pytest.raises(DeadlineExceeded):
            handle.wait_until_consumed("orders", within=0.1)


@pytest.mark.parametrize("isolation", ["reset", "names"])
def test_a_step_of_a_script_that_never_ran_is_an_error(pytester: pytest.Pytester, isolation: str) -> None:
    result = run(
        pytester,
        """
    LATER = {"fault": "id=later,api=Produce,delay=1"}

    def test_a_follower_dies(kafka, kafka_clock):
        kafka.script([{"at": "1m", "do": {"pause": 0}}, {"at": "1h", "optional": True, "do": LATER}])
        kafka_clock.advance("30s")

    def test_next(kafka, kafka_clock):
        kafka_clock.advance("8d")
        assert list(kafka.faults) == []
    """,
        f"--ottla-isolation={isolation}",
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["*script step 'step-1' (at 1m: pause 0) never ran: broker time went on by 30*s since the script began*"]
    )
