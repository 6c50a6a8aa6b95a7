"""The kit for users' tests: the pytest plugin, the handle, waits, resets, reports."""
