"""The topic configs that a log obeys, under Python names. Defaults are Kafka's."""

from typing import NamedTuple

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

NEVER = INT64_MAX
"""The value of `flush_messages`, `flush_ms` and the compaction lag that means: not at all."""

COMPACT = "compact"
DELETE = "delete"


class LogConfig(NamedTuple):
    """One topic's settings. -1 in a retention limit means no limit."""

    segment_bytes: int = 1024**3
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    preallocate: bool = False
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    producer_id_expiration_ms: int = 86_400_000

    @property
    def batch_bytes_max(self) -> int:
        """What one batch may have."""
        return min(self.max_message_bytes, self.segment_bytes)

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def waits_for_sync(self) -> bool:
        """Whether any acknowledgement of this topic ever waits for the disk."""
        return self.flush_messages != NEVER or self.flush_ms != NEVER

    @property
    def roll_after_ms(self) -> int:
        """How old a segment may grow before the next append begins another one."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
