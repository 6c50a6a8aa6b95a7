"""Broker time of the testing kit."""
