"""Clients of a storm, each a process of its own that writes its history: `python -m tests.storm.clients KIND …`."""
