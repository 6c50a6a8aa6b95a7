"""The doctor: what it finds, and that it says nothing of what is sound."""
