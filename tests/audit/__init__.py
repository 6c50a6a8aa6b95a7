"""The audit of the testing kit: judges, recorder, plugin."""
