"""Cluster metadata: the image, the decisions of the controller, and the stores that keep it."""
