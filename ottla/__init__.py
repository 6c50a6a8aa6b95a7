"""A broker that speaks Kafka's wire protocol."""
