"""The broker's configuration: one table of server properties, one of topic configs, both by Kafka's names."""
