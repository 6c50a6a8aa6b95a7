"""The server properties that decide about groups."""

from dataclasses import dataclass

UNLIMITED_GROUP_SIZE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's defaults. Field names are the property names with `.` written `_`."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = UNLIMITED_GROUP_SIZE
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
