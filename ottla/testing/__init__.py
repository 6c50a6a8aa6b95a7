"""For users' tests: brokers and clusters inside the test process."""
