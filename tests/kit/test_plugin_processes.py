"""The pytest plugin and processes: the answer that a child of a fork gets, and what an end leaves behind."""

import pytest

from tests.kit.test_plugin import ONE_RECORD, ini, run

pytest_plugins = ("pytester",)


def test_forked_child_is_refused_with_a_sentence(pytester: pytest.Pytester) -> None:
    """The parent's broker and its directory stay."""
    pytester.makepyfile(
        """
        import multiprocessing, os, sys
        from ottla.testing.embedded import NotRunningError

        def ask(kafka, queue):
            try:
                queue.put(kafka.topics)
            except NotRunningError as error:
                queue.put(str(error))

        def test_multiprocessing(kafka):
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            child = context.Process(target=ask, args=(kafka, queue))
            child.start()
            assert "connect clients to its bootstrap address" in queue.get(timeout=20)
            child.join()
            kafka.produce("orders", [b"a"])

        def test_child_that_exits_in_an_orderly_way(kafka):
            pid = os.fork()
            if not pid:
                import atexit
                atexit._run_exitfuncs()
                os._exit(0)
            os.waitpid(pid, 0)
            kafka.produce("orders", [b"a"])
            assert len(kafka.records("orders")) == 1
        """
    )

    run(pytester).assert_outcomes(passed=2)


def test_child_that_is_spawned_uses_the_address(pytester: pytest.Pytester) -> None:
    """It begins with nothing of its parent: the handle cannot be given to it, and the address can."""
    pytester.makepyfile(
        """
        import multiprocessing

        import pytest
        from confluent_kafka import Producer
        from ottla import NotRunningError

        def produce(bootstrap):
            producer = Producer({"bootstrap.servers": bootstrap})
            producer.produce("orders", b"book")
            assert producer.flush(20) == 0

        def test_spawn(kafka):
            context = multiprocessing.get_context("spawn")
            directory = kafka._bed._scratch.path
            child = context.Process(target=produce, args=(kafka.bootstrap,))
            child.start()
            child.join(60)
            assert child.exitcode == 0
            assert [record.value for record in kafka.records("orders")] == [b"book"]
            assert directory.exists()

        def test_handle_is_not_for_it(kafka):
            child = multiprocessing.get_context("spawn").Process(target=print, args=(kafka,))
            with pytest.raises(NotRunningError, match="give another one its bootstrap address"):
                child.start()
            kafka.produce("orders", [b"pen"])
        """
    )

    run(pytester).assert_outcomes(passed=2)


def test_nothing_is_left_behind(pytester: pytest.Pytester) -> None:
    """No thread, no directory."""
    data = pytester.mkdir("data")
    ini(pytester, f"ottla_data = {data}")
    pytester.makepyfile(ONE_RECORD)
    pytester.makeconftest(
        """
        import threading

        def pytest_sessionfinish(session):
            session.config.add_cleanup(lambda: None)

        def pytest_unconfigure(config):
            import atexit
            atexit.register(lambda: print("threads:", [t.name for t in threading.enumerate() if "ottla" in t.name]))
        """
    )

    result = run(pytester, "-s")

    result.assert_outcomes(passed=2)
    assert "threads: []" in result.stdout.str()
    assert list(data.iterdir()) == []


def test_directory_of_a_killed_process_is_removed_later(pytester: pytest.Pytester) -> None:
    data = pytester.mkdir("data")
    ini(pytester, f"ottla_data = {data}")
    pytester.makepyfile(
        """
        import os, signal

        def test_dies(kafka):
            if os.environ.get("DIES"):
                os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIES", "1")
        run(pytester)
    assert len(list(data.iterdir())) == 1

    run(pytester).assert_outcomes(passed=1)

    assert list(data.iterdir()) == []


PRE_FORK = """
import atexit
import multiprocessing
import os

import pytest
from confluent_kafka import Consumer, Producer
from ottla import NotRunningError

WORKERS = 2

def work(bootstrap, number):
    '''Of a server's worker: a client of its own, made behind the fork.'''
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", f"from {number}".encode(), partition=number)
    assert producer.flush(30) == 0
    config = {"bootstrap.servers": bootstrap, "group.id": f"worker-{number}", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    found = consumer.poll(30)
    assert found is not None and found.error() is None
    consumer.commit(found, asynchronous=False)
    consumer.close()

def check(kafka):
    values = sorted(record.value for record in kafka.records("orders"))
    assert values == [b"from %d" % number for number in range(WORKERS)]
    for number in range(WORKERS):
        assert sum(kafka.group(f"worker-{number}").offsets.values()) >= 1
    kafka.produce("orders", [b"by the parent"])
    assert len(kafka.records("orders")) == WORKERS + 1

def test_forked_before_any_request(kafka, pytestconfig):
    kafka.create_topic("orders", partitions=WORKERS)
    children = []
    for number in range(WORKERS):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                if pytestconfig.getini("ottla_where") == "process":
                    # It asks over HTTP, and does so here too.
                    assert kafka.topics == ["orders"]
                else:
                    with pytest.raises(NotRunningError, match="connect clients to its bootstrap address"):
                        kafka.topics
                work(kafka.bootstrap, number)
                atexit._run_exitfuncs()
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * WORKERS
    check(kafka)

def test_spawned(kafka):
    kafka.create_topic("orders", partitions=WORKERS)
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=work, args=(kafka.bootstrap, number)) for number in range(WORKERS)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * WORKERS
    check(kafka)
"""


@pytest.mark.parametrize("place", ["thread", "process"])
def test_workers_of_a_server_have_clients_of_their_own(pytester: pytest.Pytester, place: str) -> None:
    """TK11: os.fork when the broker is up, as a server that forks first does, and multiprocessing's spawn."""
    data = pytester.mkdir("data")
    ini(pytester, f"ottla_data = {data}", f"ottla_where = {place}")
    pytester.makepyfile(PRE_FORK)

    run(pytester).assert_outcomes(passed=2)

    assert list(data.iterdir()) == []
