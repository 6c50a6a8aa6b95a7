"""States of a broker that are kept and come back: `kafka.snapshot(name)`, `kafka.restore(name)` (docs/isolation.md)."""
