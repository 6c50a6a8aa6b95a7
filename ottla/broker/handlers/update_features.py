"""UpdateFeatures: an administrator changes the levels of the cluster's features (KIP-584, KIP-1022).

As in Kafka 4.1 all of them are changed or none in every version, and version 0, which has no type of upgrade, only
raises levels.
"""

from ottla.broker.metadata.cluster_metadata import ClusterMetadata, not_committed
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.features import FeatureUpdate, update_features
from ottla.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def handle(
    metadata: ClusterMetadata,
    context: RequestContext,  # noqa: ARG001
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type) for each in request.feature_updates
    ]
    await metadata.brokers_known()
    if request.validate_only:
        update_features(metadata.image, updates)
    else:
        await metadata.commit_planned(lambda: update_features(metadata.image, updates), not_committed)
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=update.name) for update in updates])
