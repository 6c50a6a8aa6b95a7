"""What the tables of the observatory say, as a page that people can read."""
