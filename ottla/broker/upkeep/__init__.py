"""What happens from time to time or at start and stop: retention, compaction, checkpoints, the data directory."""
