"""The handle of a test whose brokers are in another process: each call is a request to their control address."""
