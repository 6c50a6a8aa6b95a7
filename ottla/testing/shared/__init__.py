"""One broker for all workers of a test run (`--ottla-shared`): who has what of it, and who starts and stops it."""
