"""Handlers: each translates a request into calls or events, and the outcome into a response."""
