"""Classic groups: members, rebalances, static members, sessions."""
