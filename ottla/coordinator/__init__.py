"""Consumer groups: state machines that take events and answer with effects. No I/O."""
