"""Seeds: what a broker has before a test, written down in a file (docs/isolation.md)."""
