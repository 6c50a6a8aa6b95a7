"""The replicas of this broker: appends, requests that wait for a partition, following, ISR changes, failed replicas."""
