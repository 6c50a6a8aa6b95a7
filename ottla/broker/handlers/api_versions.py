"""ApiVersions: what this broker serves, from the table of APIs, and which features it and its cluster have.

v3 brings the client's name and version, and the features (KIP-584). Its clients do not understand one that is supported
from level 0 on, so it is left out there (KIP-1022); a finalized level 0 is none. The header of the response is version
0 in every version of the API, so that a client that guessed too high can read the answer.
"""

import re

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.server.apis import APIS
from ottla.broker.server.connection_interfaces import ClientIdentity
from ottla.broker.server.request_context import RequestContext
from ottla.broker.server.socket_server import Server
from ottla.cluster.image import SUPPORTED_FEATURES
from ottla.protocol.errors import ErrorCode, InvalidRequest
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# KIP-511.
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3
# Of each text that is kept of a client for as long as it is connected.
CLIENT_TEXT_MAX = 256
LEVEL_0_SINCE = 4


def handle(
    server: Server, metadata: ClusterMetadata, context: RequestContext, request: ApiVersionsRequest | None
) -> ApiVersionsResponse:
    """None is a request of a version from the future, of which nothing can be read."""
    if request is None:
        return ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=served_versions())
    if context.api_version >= SOFTWARE_SINCE:
        for text in (request.client_software_name, request.client_software_version):
            if SOFTWARE_NAME.fullmatch(text) is None:
                raise InvalidRequest(f"{text!r} is no name or version of client software")
        server.client_software.note(request.client_software_name, request.client_software_version)
    context.connection.client = ClientIdentity(
        None if context.client_id is None else context.client_id[:CLIENT_TEXT_MAX],
        request.client_software_name[:CLIENT_TEXT_MAX],
        request.client_software_version[:CLIENT_TEXT_MAX],
    )
    finalized = metadata.image.features
    return ApiVersionsResponse(
        api_keys=served_versions(),
        supported_features=_supported_features(context.api_version),
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.levels.items()
            if level > 0
        ],
    )


def served_versions() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.lowest_advertised, max_version=api.max_version)
        for api in APIS.values()
    ]


def _supported_features(version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in SUPPORTED_FEATURES.items()
        if levels.lowest > 0 or version >= LEVEL_0_SINCE
    ]
