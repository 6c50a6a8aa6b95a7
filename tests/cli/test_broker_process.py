"""What a process that is a broker does beside serving, and no longer than that."""

from typing import Any, cast

from ottla.cli.operations.broker_process import DEFERRED_WORK_AFTER_S, process_upkeep
from tests.simulation.loop import SimulationLoop


class PreparedLog:
    prepared = 0

    def prepare(self) -> None:
        self.prepared += 1


def test_nothing_is_begun_once_the_process_stops() -> None:
    """Its threads have ended by then: a start that is taken back at once printed a traceback."""
    loop, log = SimulationLoop(start_us=0), PreparedLog()
    with process_upkeep(loop, cast("Any", log)):
        pass
    loop.call_later(2 * DEFERRED_WORK_AFTER_S, loop.stop)
    loop.run_forever()
    loop.close()

    assert log.prepared == 0
