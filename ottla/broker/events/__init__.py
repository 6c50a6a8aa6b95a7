"""What the broker publishes about itself: facts become events, records of the topic `ottla.events` (docs/events.md)."""
