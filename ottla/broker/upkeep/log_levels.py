"""The levels of the broker's log, altered at run time as Kafka's tools do it: resources of type BROKER_LOGGER
(docs/operators.md §17.1).

They are no configs: nothing is stored, and after `ottla.log.level.revert.ms` they are as they were at the start. A
broker that somebody has set to debug and forgotten would fill its disk.
"""

from collections.abc import Sequence

from ottla.broker.config.alter import Alteration, Operation, check_alterations
from ottla.broker.logging import LEVELS, LOGGERS, ROOT
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import InvalidConfig, InvalidRequest
from ottla.timer.wheel import TimerEntry

# Kafka's names. It has more levels than this log.
_OF_KAFKA = {"FATAL": "error", "ERROR": "error", "WARN": "warning", "INFO": "info", "DEBUG": "debug", "TRACE": "debug"}
_KAFKAS = {LEVELS["error"]: "ERROR", LEVELS["warning"]: "WARN", LEVELS["info"]: "INFO", LEVELS["debug"]: "DEBUG"}


class BrokerLoggers:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._levels = runtime.log.levels
        self._revert_timer: TimerEntry | None = None

    def levels(self) -> dict[str, str]:
        """By logger, in Kafka's words."""
        return {name: _KAFKAS[self._levels.of(name)] for name in LOGGERS}

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
        """Raises InvalidRequest or InvalidConfig, and then nothing is altered."""
        check_alterations(alterations)
        wanted = [(each.name, _level(each)) for each in alterations]
        if validate_only:
            return
        for name, level in wanted:
            self._levels.set(name, level)
        self.stop()
        revert_ms = self._runtime.config.ottla_log_level_revert_ms
        if revert_ms:
            self._revert_timer = self._runtime.schedule(revert_ms, self._revert)

    def stop(self) -> None:
        if self._revert_timer is not None:
            self._revert_timer.cancel()

    def _revert(self) -> None:
        self._levels.reset()
        self._runtime.log.info("the levels of the log are those of the start again")


def _level(alteration: Alteration) -> int | None:
    name = alteration.name
    if alteration.operation not in (Operation.SET, Operation.DELETE):
        raise InvalidRequest(f"the level of {name} can be set or removed, nothing else")
    if name not in LOGGERS:
        raise InvalidConfig(f"there is no logger {name}; there are {', '.join(LOGGERS)}")
    if alteration.operation == Operation.DELETE:
        if name == ROOT:
            raise InvalidRequest(f"the level of {ROOT} cannot be removed, for the other loggers have it")
        return None
    level = _OF_KAFKA.get((alteration.value or "").upper())
    if level is None:
        raise InvalidConfig(f"{name}={alteration.value}: expected one of {', '.join(_OF_KAFKA)}")
    return LEVELS[level]
