"""What clients may use of a broker, and how they are held to it."""
