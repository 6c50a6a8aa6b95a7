"""Clients that are principals, of which some are intruders, while ACLs change: I-34."""
