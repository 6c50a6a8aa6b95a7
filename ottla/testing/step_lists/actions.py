"""What a step of a script can do: the actions of handles, by name, with what each of them takes."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.testing.clock.timeline import parse_delta
from ottla.testing.faults.rule_values import RuleError, nearest
from ottla.testing.seeds.seed_schema import JsonSchema, SeedError, check
from ottla.testing.surroundings.disks import BrokerDisk
from ottla.testing.surroundings.links import Links

if TYPE_CHECKING:
    from ottla.testing.clock.control import ClockControl
    from ottla.testing.faults.faults import Fault, Faults
    from ottla.testing.hosting import HostedBrokers
    from ottla.testing.surroundings.control import BrokerControl

_TEXT: Final = {"type": "string"}
_NODE: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": "number", "minimum": 0}
_END: Final = {"type": ["integer", "string"]}
_ENDS: Final = {"type": "array", "items": _END}
_WAY: Final = {"from": _END, "to": _END, "between": _ENDS}

# By `do`, what else links and disks need, and what they may have.
_LINKS: Final[Mapping[str, tuple[JsonSchema, JsonSchema]]] = {
    "cut": ({}, _WAY | {"reset": {"type": "boolean"}}),
    "delay": ({"ms": _NUMBER}, _WAY),
    "bandwidth": ({"bytes_per_s": _NUMBER}, _WAY),
    "pause": ({}, _WAY),
    "heal": ({}, {"ends": _ENDS}),
}
_DISKS: Final[Mapping[str, tuple[JsonSchema, JsonSchema]]] = {
    "full": ({}, {"after_bytes": _NODE}),
    "slow_fsync": ({"ms": _NUMBER}, {}),
    "fail": (
        {"operation": {"enum": ["fsync", "write", "read"]}},
        {"match": _TEXT, "times": {"type": ["integer", "null"]}},
    ),
    "stall": ({}, {}),
    "corrupt": ({"topic": _TEXT, "partition": _NODE, "offset": _NODE}, {}),
    "lose_unsynced": ({}, {}),
    "heal": ({}, {}),
}


class ActedOn(Protocol):
    """The brokers of a testbed, and all that is around them."""

    hosted: "HostedBrokers"
    control: "BrokerControl"
    clock: "ClockControl"
    links: Links

    def disk(self, node_id: int) -> BrokerDisk: ...


def _object(required: JsonSchema, others: JsonSchema) -> JsonSchema:
    properties = {**required, **others}
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": list(required)}


ACTIONS: Final[Mapping[str, JsonSchema]] = {
    "fault": {"type": ["object", "string"]},
    "remove": _TEXT,
    "release": _TEXT,
    "kill": _NODE,
    "stop": _NODE,
    "restart": _NODE,
    "pause": _NODE,
    "resume": _NODE,
    "isolate": _NODE,
    "move_leader": _object({"topic": _TEXT, "partition": _NODE, "to": _NODE}, {}),
    "move_group": _object({"group": _TEXT, "to": _NODE}, {}),
    "link": {"type": "object"},
    "disk": {"type": "object"},
    "skew": _object({"node": _NODE, "by": {}}, {}),
}
"""What each of them takes."""


def check_action(name: str, given: Any) -> None:
    """Raises SeedError, MomentError."""
    if name not in ACTIONS:
        raise SeedError(f"do: there is no {name!r}{nearest(name, ACTIONS)}")
    path = f"do.{name}"
    check(given, ACTIONS[name], path)
    if name == "skew":
        parse_delta(given["by"])
    if name in ("link", "disk"):
        kinds = _LINKS if name == "link" else _DISKS
        if given.get("do") not in kinds:
            raise SeedError(f"{path}.do: {given.get('do')!r}: expected one of {', '.join(kinds)}")
        required, others = kinds[given["do"]]
        node = {"node": _NODE} if name == "disk" else {}
        check(given, _object({"do": _TEXT, **node, **required}, others), path)
        if name == "link" and given["do"] != "heal":
            _check_way(given, path)


def _check_way(given: Mapping[str, Any], path: str) -> None:
    if "between" in given:
        if "from" in given or "to" in given or len(given["between"]) != 2:
            raise SeedError(f"{path}.between: expected the two ends of a link, in the place of from and to")
    elif "from" not in given or "to" not in given:
        raise SeedError(f"{path}: expected from and to, or between for both ways")


async def run_action(bed: ActedOn, name: str, given: Any) -> None:
    """On the loop of the brokers. Raises whatever the action of a handle raises."""
    match name:
        case "kill":
            await bed.control.kill(given)
        case "stop":
            await bed.control.stop(given)
        case "restart":
            await bed.control.restart(given, None)
        case "move_leader":
            await bed.control.move_leader(given["topic"], given["partition"], given["to"])
        case "move_group":
            await bed.control.move_group(given["group"], given["to"])
        case _:
            _run_at_once(bed, name, given)


def _run_at_once(bed: ActedOn, name: str, given: Any) -> None:
    faults = bed.hosted.fault_host.faults
    match name:
        case "fault":
            faults.add(given)
        case "remove":
            _rule(faults, given).remove()
        case "release":
            _rule(faults, given).release()
        case "pause":
            bed.control.pause(given)
        case "resume":
            bed.control.resume(given)
        case "isolate":
            bed.links.isolate(given)
        case "link":
            _link(bed.links, given)
        case "disk":
            _disk(bed.disk(given["node"]), given)
        case _:
            bed.clock.skew(given["node"], parse_delta(given["by"]))


def _rule(faults: "Faults", rule_id: str) -> "Fault":
    found = next((each for each in faults if each.id == rule_id), None)
    if found is None:
        raise RuleError(f"there is no rule {rule_id!r} now")
    return found


def _link(links: Links, given: Mapping[str, Any]) -> None:
    if given["do"] == "heal":
        links.heal(*given.get("ends", ()))
        return
    change: Callable[..., None] = links.lossless_pause if given["do"] == "pause" else getattr(links, given["do"])
    options = {name: value for name, value in given.items() if name not in ("do", "from", "to", "between")}
    ends = given["between"] if "between" in given else [given["from"]]
    change(*ends, to=given.get("to"), **options)


def _disk(disk: BrokerDisk, given: Mapping[str, Any]) -> None:
    options = {name: value for name, value in given.items() if name not in ("do", "node")}
    getattr(disk, given["do"])(**options)
