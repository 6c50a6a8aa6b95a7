"""Leader and follower state of a partition. No I/O of its own: it decides, the log and the shell act."""
