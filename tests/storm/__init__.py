"""The kill storm: real brokers killed, paused and stopped under real clients, whose histories are judged at the end."""
