"""Who a client is and what it may do: decisions without I/O, given the time and random values as arguments."""
