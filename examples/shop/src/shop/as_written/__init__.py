"""The service as the team wrote it: it works, until something fails."""
