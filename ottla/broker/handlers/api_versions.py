"""ApiVersions: what this broker serves, from the table of APIs.

v3 brings the client's name and version. The header of the response is version 0 in every version of the API, so that a
client that guessed too high can read the answer.
"""

import re

from ottla.broker.server.apis import APIS
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.socket_server import Server
from ottla.protocol.errors import ErrorCode, InvalidRequest
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

# KIP-511.
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3


def handle(server: Server, context: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """None is a request of a version from the future, of which nothing can be read."""
    if request is None:
        return ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=served_versions())
    if context.api_version >= SOFTWARE_SINCE:
        for text in (request.client_software_name, request.client_software_version):
            if SOFTWARE_NAME.fullmatch(text) is None:
                raise InvalidRequest(f"{text!r} is no name or version of client software")
        server.client_software.note(request.client_software_name, request.client_software_version)
    return ApiVersionsResponse(api_keys=served_versions())


def served_versions() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.lowest_advertised, max_version=api.max_version)
        for api in APIS.values()
    ]
