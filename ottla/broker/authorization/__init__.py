"""What clients may do, where an authorizer is configured (§60)."""
