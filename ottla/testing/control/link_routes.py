"""Links between brokers, to their store and from clients, over HTTP."""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.testing.control.problems import Problem, wrong_value
from ottla.testing.control.router import ControlCall, Row
from ottla.testing.control.service import ControlService, check_range
from ottla.testing.control.surroundings_documents import (
    LinkBandwidth,
    LinkBody,
    LinkCut,
    LinkDelay,
    LinkDocument,
    LinkHeal,
    LinkIsolate,
    LinkList,
    LinkPause,
    WayBody,
)
from ottla.testing.surroundings.links import MOST_ENDS, LinkError
from ottla.testing.surroundings.ways import CLIENTS, STORE, Place

DELAY_MS_MAX: Final = 60_000
BYTES_PER_S_MAX: Final = 1 << 40


def _links(service: ControlService, _call: ControlCall) -> LinkList:
    return LinkList([LinkDocument.of(*each) for each in service.bed.links.in_force()])


def _change(service: ControlService, call: ControlCall) -> LinkList:
    body: LinkBody = call.body
    try:
        shown = _changed(service, body)
    except LinkError as error:
        raise Problem(400, "wrong-link", str(error)) from None
    service.events.add(f"link_{body.do}", **shown)
    return _links(service, call)


def _changed(service: ControlService, body: LinkBody) -> Mapping[str, object]:
    """What its event has. Raises Problem, LinkError."""
    links = service.bed.links
    match body:
        case LinkIsolate():
            links.isolate(_node(service, "node", body.node))
            return {"node": body.node}
        case LinkHeal():
            if len(body.ends) > MOST_ENDS:
                raise wrong_value("ends", "a link has two of them")
            links.heal(*(_place(service, f"ends[{index}]", each) for index, each in enumerate(body.ends)))
            return {"ends": list(body.ends)}
        case _:
            return _changed_way(service, body)


def _changed_way(service: ControlService, body: WayBody) -> Mapping[str, object]:
    links = service.bed.links
    one, other, to = _ends(service, body)
    match body:
        case LinkCut():
            links.cut(one, other, to=to, reset=body.reset)
        case LinkDelay():
            check_range("ms", body.ms, 0, DELAY_MS_MAX)
            links.delay(one, other, to=to, ms=body.ms)
        case LinkBandwidth():
            check_range("bytes_per_s", body.bytes_per_s, 1, BYTES_PER_S_MAX)
            links.bandwidth(one, other, to=to, bytes_per_s=body.bytes_per_s)
        case LinkPause():
            links.lossless_pause(one, other, to=to)
    return {"from": one, "to": to} if other is None else {"between": [one, other]}


def _ends(service: ControlService, body: WayBody) -> tuple[Place, Place | None, Place | None]:
    """As `Links` takes them: from, the other end of both ways, and where one way leads. Raises Problem."""
    if body.between is not None:
        if body.from_ is not None or body.to is not None:
            raise wrong_value("between", "it is for both ways, in the place of from and to")
        if len(body.between) != MOST_ENDS:
            raise wrong_value("between", "expected the two ends of a link")
        one, other = (_place(service, f"between[{index}]", each) for index, each in enumerate(body.between))
        return one, other, None
    if body.from_ is None or body.to is None:
        raise wrong_value(
            "from" if body.from_ is None else "to", "it is missing: from and to, or between for both ways"
        )
    return _place(service, "from", body.from_), None, _place(service, "to", body.to)


def _place(service: ControlService, field: str, given: Place) -> Place:
    """Raises Problem."""
    return given if given in (STORE, CLIENTS) else _node(service, field, given, f", '{STORE}' and '{CLIENTS}'")


def _node(service: ControlService, field: str, given: Place, others: str = "") -> int:
    """`others`: what else may be given, for the sentence."""
    known: Sequence[int] = service.bed.hosted.node_ids
    if not isinstance(given, int) or given not in known:
        shown = repr(given[:60]) if isinstance(given, str) else given
        raise wrong_value(field, f"there is no broker {shown}, only {', '.join(map(str, known))}{others}")
    return given


# fmt: off
LINK_ROWS: Final = (
    Row("GET", "/v1/links", "What is wrong with links.", _links, answer=LinkList, needs_brokers=False),
    Row("PUT", "/v1/links", "Cut a link, slow it down, hold it up, or heal it.", _change, LinkBody, LinkList,
        changes=True, needs_brokers=False),
)
# fmt: on
