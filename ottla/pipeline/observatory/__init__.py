"""Tables that answer questions about groups, each a pure function of events."""

from typing import Final

TABLES: Final = (
    "rebalances",
    "member_sessions",
    "partition_ownership",
    "lag",
    "stuck_members",
    "leadership",
    "transactions",
)
