"""A data pipeline on Spark for topics and for the broker's own events (docs/pipeline.md). Needs the extra `[spark]`."""
