"""What a broker says to whoever started it."""


class StartError(Exception):
    """The broker cannot start: one sentence for whoever tried."""
