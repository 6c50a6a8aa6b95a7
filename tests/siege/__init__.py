"""The siege: one broker with little memory under what clients can do, and well-behaved clients that must not suffer."""
