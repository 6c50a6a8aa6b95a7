"""One partition of a coordinator topic, whatever it holds: steps, appends, replay, loading and resigning."""
