"""The clocks and wheels of all brokers of a handle, made when each starts. Everything here runs on their loop."""

from collections.abc import Callable, Mapping

from ottla.broker.logging import LazyLog
from ottla.broker.runtime import BrokerTime, LoopRuntime
from ottla.testing.clock.included import REPLICATION, TOKENS, IncludedClock, IncludedLoginClock
from ottla.testing.clock.timeline import BrokerTimeline, MachineClock, NodeClock, moment
from ottla.testing.clock.wheel import DrivenWheel
from ottla.timer.clock import Clock


class BrokerTimes:
    """The clocks and wheels of brokers, which they are given when they start."""

    def __init__(self) -> None:
        self.machine = MachineClock()
        self.timeline = BrokerTimeline(self.machine)
        self.wheels: dict[int, DrivenWheel] = {}
        """Of the brokers that have started last, by node id."""
        self.included: frozenset[str] = frozenset()
        """What goes by broker time that goes by the machine's else (`ottla.testing.clock.included`)."""
        self._login_clocks: dict[int, IncludedLoginClock] = {}
        self._lag_clocks: dict[int, IncludedClock] = {}
        self.before_turn: Callable[[DrivenWheel, int], None] = _nothing
        self.is_moved: Callable[[], bool] = bool
        """Whether broker time is not the machine's."""

    def new_broker_time(self, runtime: LoopRuntime) -> BrokerTime:
        clock = NodeClock(self.timeline, runtime.node_id)
        runtime.log = self.shown_in(runtime.log, clock)
        wheel = DrivenWheel(runtime, self.timeline, clock, lambda each, now_ms: self.before_turn(each, now_ms))
        node_id = runtime.node_id
        self.wheels[node_id] = wheel
        logins = self._login_clocks[node_id] = IncludedLoginClock(self.machine, clock, self.timeline)
        lags = self._lag_clocks[node_id] = IncludedClock(self.machine, clock)
        self._include(node_id)
        return BrokerTime(clock, wheel, logins, lags)

    def include(self, names: frozenset[str]) -> None:
        self.included = names
        for node_id in self.wheels:
            self._include(node_id)

    def _include(self, node_id: int) -> None:
        self._login_clocks[node_id].include(TOKENS in self.included)
        self._lag_clocks[node_id].include(REPLICATION in self.included)
        self.wheels[node_id].include_replication(is_included=REPLICATION in self.included)

    def drive(self) -> None:
        for wheel in self.wheels.values():
            wheel.drive()

    def shown_in(self, log: LazyLog, clock: Clock) -> LazyLog:
        """The log with `broker_time`, by a clock, beside the machine's time that each line has, while it is moved."""

        def fields() -> Mapping[str, str]:
            if not self.is_moved():
                return {}
            return {
                "broker_time": f"{moment(clock.wall_ms()).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
            }

        return log.with_fields_of_now(fields)


def _nothing(wheel: DrivenWheel, now_ms: int) -> None:
    del wheel, now_ms
