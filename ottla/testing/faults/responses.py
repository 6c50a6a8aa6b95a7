"""How the response of a request is changed by rules: errors in their places, other fields, other bytes."""

from typing import Any, Final

from ottla.broker.server.apis import APIS
from ottla.broker.server.dispatch import PreparedFrame, Route
from ottla.protocol.client import parse_response
from ottla.testing.faults.actions import Corrupt, Duplicate, Error, Rewrite, ThrottleClient, TruncateResponse
from ottla.testing.faults.calls import FETCH, FaultCall, FaultParts
from ottla.testing.faults.error_places import blank, describe_refusal, refuse_unit, refused
from ottla.testing.faults.frames import flip_bits, longer_than_it_is
from ottla.testing.faults.plan import FaultPlan, UnitError
from ottla.testing.faults.request_units import Unit, find_answer, put_in, take_out
from ottla.testing.faults.rule_values import parse_numbers

# In a record batch: where its checksum stands.
CRC_POSITION: Final = 17


class FaultyResponse:
    """What the plan of one request does to its response."""

    def __init__(self, plain: Route, parts: FaultParts, plan: FaultPlan, call: FaultCall) -> None:
        self._plain = plain
        self._parts = parts
        self._plan = plan
        self._call = call
        action = plan.action
        self.ends_after = action.size if isinstance(action, TruncateResponse) else None
        """How many bytes of it are sent before the connection ends; None: all, and it does not end."""

    def take_out(self) -> bool:
        """Takes the units that fail, and are not to be applied, out of the request. Says whether something is left of
        it. Reading is harmless: what fetches is left, and answered with an error afterwards."""
        if self._call.api == FETCH and self._plan.errors:
            # An error is sent at once.
            self._call.body.max_wait_ms = 0
            return True
        failing = {unit.path for error in self._plan.errors if _is_taken_out(error) for unit in _at_depth(error)}
        return not failing or take_out(self._call.body, self._call.levels, failing)

    def empty(self) -> Any:
        """The response to a request of which nothing is left."""
        return self._plain.api.response_class()()

    def changed(self, response: Any, frame: Any) -> tuple[Any, Any]:
        """The response as it is sent, or its frame where nothing of it changes."""
        action = self._plan.action
        changes_fields = isinstance(action, Error | ThrottleClient | Rewrite) or (
            isinstance(action, Corrupt) and action.what == "crc"
        )
        if not self._plan.errors and not changes_fields:
            return response, frame
        if response is None or isinstance(response, PreparedFrame):
            built = frame if response is None else self._plain.build_frame(response, self._call.context.correlation_id)
            response = self.decoded(self._plain, built)
        self._put_in_errors(response)
        match action:
            case Error() if self._plan.top is not None:
                response = refused(self._plain.api, self._plain.version, self._call.body, self._plan.top)
            case ThrottleClient():
                response.throttle_time_ms = action.ms
            case Rewrite():
                _rewrite(response, action)
            case Corrupt():
                _corrupt_checksum(response)
            case _:
                pass
        return response, None

    def corrupted(self, frame: bytes) -> bytes:
        """Its bytes as they are sent."""
        match self._plan.action:
            case Duplicate():
                return frame + frame
            case Corrupt(what="length"):
                return longer_than_it_is(frame)
            case Corrupt(what="bytes"):
                state = self._plan.terminal
                assert state is not None, "a rule corrupts it"
                return flip_bits(frame, state.random)
            case _:
                return frame

    @staticmethod
    def decoded(plain: Route, frame: Any) -> Any:
        """The response that a frame has."""
        data = frame if isinstance(frame, bytes) else b"".join(frame)
        return parse_response(plain.api.response_class(), plain.version, data[4:])

    def _put_in_errors(self, response: Any) -> None:
        ordered = sorted(
            ((unit, error) for error in self._plan.errors for unit in _at_depth(error)), key=lambda pair: pair[0].path
        )
        done: set[tuple[int, ...]] = set()
        for unit, error in ordered:
            if error.place.each is not None or (unit.path and unit.path in done):
                continue
            done.add(unit.path)
            self._plain.errors[int(error.injected.code)] += 1
            if _is_taken_out(error) and self._call.api != FETCH and unit.path:
                refuse_unit(response, self._call.levels, error.place, unit, error.injected)
            else:
                self._replace(response, unit, error)
        for error in self._plan.errors:
            if error.place.each is not None:
                for element in getattr(response, error.place.each):
                    describe_refusal(element, error.place, error.injected)
            elif self._call.is_for_all:
                self._replace_all(response, error)

    def _replace(self, response: Any, unit: Unit, error: UnitError) -> None:
        """The answer to a unit that was served."""
        depth = min(error.place.depth, len(self._call.levels))
        levels = self._call.levels[:depth]
        found = find_answer(response, levels, unit)
        if error.place.inner is not None:
            if found is not None:
                self._replace_inner(found[0][found[1]], error)
            return
        if found is None:
            made = put_in(response, levels, unit)
        else:
            array, index = found
            made = array[index] = blank(array[index], levels, depth)
        describe_refusal(made, error.place, error.injected)
        if self._call.api == FETCH:
            self._send_again(unit)

    def _replace_inner(self, element: Any, error: UnitError) -> None:
        assert error.place.inner is not None, "the response names the partitions"
        array, index_field = error.place.inner
        holds = None
        if error.partitions is not None:
            holds = parse_numbers("partition", error.partitions.rule.match["partition"])
        for partition in getattr(element, array):
            if holds is None or holds(getattr(partition, index_field)):
                describe_refusal(partition, error.place, error.injected)

    def _replace_all(self, response: Any, error: UnitError) -> None:
        """Of a request for all there is: what the response names and the rule is about."""
        wanted = {tuple(unit.values.get(name) for name in ("topic", "partition")) for unit in error.units}
        levels = self._call.levels[: min(error.place.depth, len(self._call.levels))]
        topics, *deeper = [level for level in levels if level.answered]
        for number, topic in enumerate(list(getattr(response, topics.answered) or ())):
            name = getattr(topic, topics.keys[0].answered)
            if error.place.inner is not None and (name, None) in wanted:
                self._replace_inner(topic, error)
            elif not deeper and error.place.inner is None and any(name == each[0] for each in wanted):
                made = getattr(response, topics.answered)[number] = blank(topic, levels, len(levels))
                describe_refusal(made, error.place, error.injected)
            for level in deeper:
                array = getattr(topic, level.answered)
                for index, element in enumerate(array):
                    if (name, getattr(element, level.keys[0].answered)) in wanted:
                        array[index] = blank(element, levels, len(levels))
                        describe_refusal(array[index], error.place, error.injected)

    def _send_again(self, unit: Unit) -> None:
        """The session counts the partition as never sent, so that the next incremental fetch has it."""
        session = self._parts.fetch_sessions.session(self._call.body.session_id)
        if session is not None:
            topic, partition = unit.elements
            session.send_again(topic.topic_id if session.uses_topic_ids else topic.topic, partition.partition)


def _is_taken_out(error: UnitError) -> bool:
    return not error.is_applied and error.place.inner is None and error.place.each is None


def _at_depth(error: UnitError) -> list[Unit]:
    """What has the error: of several units below one that has it, this one once."""
    depth = error.place.depth
    if error.place.inner is not None or not depth:
        return error.units
    return [
        Unit(unit.path[:depth], unit.elements[:depth], unit.values) for unit in error.units if len(unit.path) >= depth
    ]


def _rewrite(response: Any, action: Rewrite) -> None:
    for path, value in action.values.items():
        if path == "versions":
            _rewrite_versions(response, value)
            continue
        *way, name = path.split(".")
        owners = [response]
        for step in way:
            owners = [
                each
                for owner in owners
                for each in (getattr(owner, step) if isinstance(getattr(owner, step), list) else [getattr(owner, step)])
                if each is not None
            ]
        for owner in owners:
            setattr(owner, name, value)


def _rewrite_versions(response: Any, versions: dict[str, str]) -> None:
    """`4-11`: the range that ApiVersions says; an empty text leaves the API out."""
    keys = {api.name: api.key for api in APIS.values()}
    for name, span in versions.items():
        if not span:
            response.api_keys = [each for each in response.api_keys if each.api_key != keys[name]]
            continue
        first, _, last = span.partition("-")
        for each in response.api_keys:
            if each.api_key == keys[name]:
                each.min_version, each.max_version = int(first), int(last or first)


def _corrupt_checksum(response: Any) -> None:
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records is not None and len(partition.records) > CRC_POSITION:
                records = bytearray(partition.records)
                records[CRC_POSITION] ^= 0xFF
                partition.records = bytes(records)
                return
