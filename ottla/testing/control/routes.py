"""All rows: those that are served, and those of features that are not, which are answered 501.

A feature that is served takes the place of its rows here by rows of its own module.
"""

from typing import Final

from ottla.broker.admin.http import HttpResponse
from ottla.broker.logging import LazyLog
from ottla.testing.control.broker_routes import BROKER_ROWS
from ottla.testing.control.clock_routes import CLOCK_ROWS
from ottla.testing.control.documents import About
from ottla.testing.control.event_log import EventLog
from ottla.testing.control.fault_routes import FAULT_ROWS
from ottla.testing.control.log_routes import LOG_ROWS
from ottla.testing.control.openapi import openapi_document
from ottla.testing.control.router import ControlCall, Router, Row, json_response
from ottla.testing.control.service import ControlService
from ottla.testing.control.snapshot_routes import SNAPSHOT_ROWS
from ottla.testing.control.wait_routes import WAIT_ROWS
from ottla.testing.control.world_routes import WORLD_ROWS, about
from ottla.testing.testbed import Testbed

# Each with what it would do.
NOT_SERVED_ROWS: Final = (
    Row("PUT", "/v1/links", "Faults between brokers."),
    Row("PUT", "/v1/disks/{node}", "Faults of a disk."),
    Row("POST", "/v1/wire/start", "Record requests to a file."),
    Row("POST", "/v1/wire/stop", "End the recording."),
    Row("GET", "/v1/coverage", "What of the protocol was used."),
)


def _about(service: ControlService, _call: ControlCall) -> About:
    served = list(dict.fromkeys(each.feature for each in ROWS if each.handler is not None and each.feature))
    not_served = [f"{each.method} {each.path}" for each in ROWS if each.handler is None]
    return about(service, served, not_served)


def _openapi(_service: ControlService, _call: ControlCall) -> HttpResponse:
    """Of all rows, those that are not served included."""
    return json_response(openapi_document(ROWS))


ROWS: Final = (
    Row("GET", "/v1", "What this is.", _about, answer=About),
    Row("GET", "/v1/openapi.json", "This table, as OpenAPI 3.1.", _openapi, needs_brokers=False),
    *WORLD_ROWS,
    *BROKER_ROWS,
    *SNAPSHOT_ROWS,
    *CLOCK_ROWS,
    *LOG_ROWS,
    *FAULT_ROWS,
    *WAIT_ROWS,
    *NOT_SERVED_ROWS,
)


def router_of(bed: Testbed, events: EventLog, log: LazyLog) -> Router:
    return Router(ControlService(bed, events), ROWS, log)
