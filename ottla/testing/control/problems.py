"""What is answered where something cannot be done: problem documents of RFC 9457, each with a sentence."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from ottla.broker.admin.http import HttpResponse
from ottla.protocol.errors import ErrorCode, KafkaError

PROBLEM_JSON: Final = "application/problem+json"
PROBLEM_PREFIX: Final = "urn:ottla:problem:"
_NOT_THERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND})
_WRONG_STATE: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Problem(Exception):
    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        field: str | None = None,
        more: Mapping[str, Any] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`kind` ends the URN that is its type. `field`: what of the request is wrong. `more`: further members."""
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.field = field
        self.more = more or {}
        self.headers = headers

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "type": f"{PROBLEM_PREFIX}{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.field is not None:
            document["field"] = self.field
        return document | dict(self.more)

    def response(self) -> HttpResponse:
        body = json.dumps(self.document(), ensure_ascii=False).encode("utf-8", "backslashreplace")
        return HttpResponse(self.status, (body, b"\n"), PROBLEM_JSON, self.headers)


def wrong_value(field: str, detail: str) -> Problem:
    """What can never be."""
    return Problem(400, "wrong-value", f"{field}: {detail}" if field else detail, field=field or None)


def missing(kind: str, detail: str) -> Problem:
    """There is no such topic, group, rule, broker."""
    return Problem(404, f"no-such-{kind}", detail)


def wrong_state(detail: str) -> Problem:
    return Problem(409, "wrong-state", detail)


def problem_of(error: KafkaError) -> Problem:
    """What a client would be answered with this error."""
    status = 404 if error.code in _NOT_THERE else 409 if error.code in _WRONG_STATE else 400
    return Problem(status, "kafka-error", str(error), more={"error": error.code.name})
