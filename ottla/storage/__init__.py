"""The segmented log in Kafka's on-disk format: indexes, checkpoints, recovery, retention, compaction."""
