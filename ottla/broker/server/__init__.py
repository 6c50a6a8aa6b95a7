"""Listeners, connections, dispatch and the table of APIs: from the bytes of a socket to a handler and back."""
