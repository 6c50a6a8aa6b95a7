"""What the image in place of apache/kafka does: it reads `KAFKA_*` variables, says what Kafka's log says when it is
ready, and has Kafka's command-line tools as far as `ottla` can do what they do."""
