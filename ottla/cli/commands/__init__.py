"""What is typed: one module for each noun, with its options and what it prints."""
