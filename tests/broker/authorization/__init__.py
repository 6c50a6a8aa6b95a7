"""The authorizer in a broker."""
