"""A shop: orders go through an outbox to Kafka, and a worker charges them at the bank."""
