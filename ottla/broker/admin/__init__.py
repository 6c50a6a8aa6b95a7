"""What a broker says of itself over HTTP: health and metrics."""
