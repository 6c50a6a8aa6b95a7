"""WriteTxnMarkers: the markers that end transactions, from their coordinator to the leaders of partitions.

v1 is flexible, v2 has the level of `transaction.version` by which the transaction ended (KIP-1228).
"""

from ottla.protocol.schema import define

TABLE = """
WriteTxnMarkersRequest  key 27  versions 1-2  flexible 1+
  markers                []WritableTxnMarker       0+
    producer_id          int64                     0+
    producer_epoch       int16                     0+
    transaction_result   bool                      0+
    topics               []WritableTxnMarkerTopic  0+
      name               string                    0+
      partition_indexes  []int32                   0+
    coordinator_epoch    int32                     0+
    transaction_version  int8                      2+

WriteTxnMarkersResponse  key 27  versions 1-2  flexible 1+
  markers                []WritableTxnMarkerResult           0+
    producer_id          int64                               0+
    topics               []WritableTxnMarkerTopicResult      0+
      name               string                              0+
      partitions         []WritableTxnMarkerPartitionResult  0+
        partition_index  int32                               0+
        error_code       int16                               0+
"""

(
    WriteTxnMarkersRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersResponse,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WritableTxnMarkerPartitionResult,
) = define(TABLE, __name__)
