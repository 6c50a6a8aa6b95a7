"""What brokers of a test have around them, and how it fails: other brokers, links, disks, and their own processes."""
