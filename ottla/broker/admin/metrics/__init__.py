"""What a broker counts and measures, for Prometheus."""
