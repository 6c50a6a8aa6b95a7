"""Tables that answer questions about groups, each a pure function of events."""
