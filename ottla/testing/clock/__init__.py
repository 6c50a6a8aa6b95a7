"""Broker time for tests: a second clock and a second timing wheel for each broker, which a test stops and moves.

What waits for the network, a disk or another broker goes by the machine's clock, whatever a test does
(`ottla.timer.clock`): a fetch ends, a lease is renewed. Groups, transactions, retention and every timestamp go by
broker time. One `BrokerTimeline` serves all brokers of a handle, `Walk` is how time moves on, and `BrokerClock` is what
tests talk to (docs/broker-time.md).
"""
