"""All rows: those that are served, and those without a handler, which are answered 501."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ottla.broker.admin.http import HttpResponse
from ottla.broker.logging import LazyLog
from ottla.testing.control.broker_routes import BROKER_ROWS
from ottla.testing.control.clock_routes import CLOCK_ROWS
from ottla.testing.control.disk_routes import DISK_ROWS
from ottla.testing.control.documents import About
from ottla.testing.control.event_log import EventLog
from ottla.testing.control.fault_routes import FAULT_ROWS
from ottla.testing.control.group_routes import GROUP_ROWS
from ottla.testing.control.link_routes import LINK_ROWS
from ottla.testing.control.log_routes import LOG_ROWS
from ottla.testing.control.openapi import openapi_document
from ottla.testing.control.router import ControlCall, Router, Row, json_response
from ottla.testing.control.script_routes import SCRIPT_ROWS
from ottla.testing.control.service import ControlService
from ottla.testing.control.snapshot_routes import SNAPSHOT_ROWS
from ottla.testing.control.wait_routes import WAIT_ROWS
from ottla.testing.control.wire_routes import WIRE_ROWS
from ottla.testing.control.world_routes import WORLD_ROWS
from ottla.testing.scope import ControlScope
from ottla.testing.testbed import Testbed


def _about(service: ControlService, _call: ControlCall) -> About:
    hosted = service.bed.hosted
    try:
        own_version = version("ottla")
    except PackageNotFoundError:
        own_version = "0"
    return About(
        version=own_version,
        bootstrap=hosted.bootstrap,
        cluster_id=hosted.cluster_id,
        brokers=list(hosted.parts()),
        fault_seed=hosted.fault_host.seed,
        clock="moved" if service.bed.clock.is_touched else "real",
        features=list(dict.fromkeys(each.feature for each in ROWS if each.handler is not None and each.feature)),
        not_served=[f"{each.method} {each.path}" for each in ROWS if each.handler is None],
    )


def _openapi(_service: ControlService, _call: ControlCall) -> HttpResponse:
    """Of all rows, those that are not served included."""
    return json_response(openapi_document(ROWS))


ROWS: Final = (
    Row("GET", "/v1", "What this is.", _about, answer=About, needs_brokers=False),
    Row("GET", "/v1/openapi.json", "This table, as OpenAPI 3.1.", _openapi, needs_brokers=False),
    *WORLD_ROWS,
    *BROKER_ROWS,
    *LINK_ROWS,
    *DISK_ROWS,
    *SNAPSHOT_ROWS,
    *CLOCK_ROWS,
    *LOG_ROWS,
    *GROUP_ROWS,
    *FAULT_ROWS,
    *SCRIPT_ROWS,
    *WAIT_ROWS,
    *WIRE_ROWS,
)


def router_of(bed: Testbed, events: EventLog, log: LazyLog, scope: ControlScope | None = None) -> Router:
    return Router(ControlService(bed, events, scope), ROWS, log)
