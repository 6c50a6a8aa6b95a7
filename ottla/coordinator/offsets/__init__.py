"""Committed offsets of groups: commit, fetch, delete, expiry."""
