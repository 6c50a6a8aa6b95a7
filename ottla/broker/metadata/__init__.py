"""The metadata store followed and changed: registration, the controller role, commands about topics and partitions."""
