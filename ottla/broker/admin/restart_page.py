"""The page that says whether a broker may be stopped (docs/operators.md §3).

Imported when it is first asked for: most brokers never are.
"""

from collections.abc import AsyncIterator, Iterable, Mapping

from ottla.broker.admin.broker_admin import BrokerAdmin, json_response, unknown_broker
from ottla.broker.admin.health import LifePhase
from ottla.broker.admin.http import HttpRequest, HttpResponse
from ottla.broker.admin.probe import HealthProbe
from ottla.broker.admin.restart_safety import RestartCheck, RestartSafety
from ottla.broker.runtime import next_step

# A step of the loop looks at so many.
PARTITIONS_PER_STEP = 1000
# Of 31 bits.
NODE_ID_DIGITS_MAX = 10


async def restart_page(request: HttpRequest, brokers: Mapping[int, BrokerAdmin]) -> HttpResponse:
    """Any of the `brokers` here that serves answers, for any of the cluster."""
    probe = next((each.probe for each in brokers.values() if each.life.phase is LifePhase.SERVING), None)
    name = request.query.get("broker")
    is_number = name is None or (name.isascii() and name.isdecimal() and len(name) <= NODE_ID_DIGITS_MAX)
    if not is_number:
        return unknown_broker(request, brokers)
    worst, worst_id = RestartSafety(), -1
    async for node_id, safety in _each(probe, [*brokers] if name is None else [int(name)]):
        if worst.is_safe:
            worst, worst_id = safety, node_id
    return json_response(200 if worst.is_safe else 503, _body(worst, worst_id))


async def _each(probe: HealthProbe | None, node_ids: Iterable[int]) -> AsyncIterator[tuple[int, RestartSafety]]:
    for node_id in node_ids:
        if probe is None:
            yield node_id, RestartSafety(is_known=False, text="no broker serves here")
        elif not probe.store_answers:
            why = "the metadata store does not answer, so what is known may be old"
            yield node_id, RestartSafety(is_known=False, text=why)
        else:
            yield node_id, await _checked(probe, node_id)


async def _checked(probe: HealthProbe, node_id: int) -> RestartSafety:
    check = RestartCheck(probe.metadata.image, node_id, probe.metadata.rules_of)
    looked_at = 0
    for count in check.steps():
        looked_at += count
        if looked_at >= PARTITIONS_PER_STEP:
            looked_at = 0
            await next_step()
    return check.safety


def _body(safety: RestartSafety, node_id: int) -> dict[str, object]:
    status = "safe" if safety.is_safe else "not safe" if safety.is_known else "unknown"
    return {
        "status": status,
        "broker": node_id,
        "text": safety.text,
        "partitions_at_risk": safety.hindered,
        "partitions": [each._asdict() for each in safety.hindrances],
        "partitions_without_another_replica": safety.going_away,
    }
