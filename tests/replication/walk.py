"""A random walk of a cluster from one seed: writes, fetches, lost and late answers, elections, crashes, lost tails."""

import random
from collections.abc import Callable

from tests.replication.broker import LAG_MS_MAX, Kinds
from tests.replication.cluster import Cluster
from tests.replication.controller import BROKERS, NO_LEADER
from tests.replication.oracle import Oracle, Violation

STEPS = 350
CHECK_LOGS_EVERY = 7


class Walk:
    def __init__(self, seed: int, kinds: Kinds | None = None) -> None:
        self.rng = random.Random(seed)
        fetch_bytes = self.rng.choice([150, 400, 1 << 20])
        self.cluster = Cluster(fetch_bytes=fetch_bytes, kinds=kinds or Kinds())
        self.oracle = Oracle(self.cluster)
        self.loss = self.rng.choice([0.0, 0.05, 0.2])
        calm, rough = self.rng.choice([(2, 1), (4, 1), (2, 2)])
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (14, self.write),
            (20, self.ask),
            (50, self.transmit),
            (10 * calm, self.learn),
            (6, self.pass_time),
            (2, self.shrink),
            (1 * rough, self.elect),
            (1 * rough, self.kill),
            (1 * rough, self.cut_power),
            (10, self.restart),
            (2, self.fence),
            (2, self.flush),
            (1, self.checkpoint),
        ]

    def run(self, steps: int = STEPS) -> None:
        weights = [weight for weight, _ in self.actions]
        for step, (_, action) in enumerate(self.rng.choices(self.actions, weights, k=steps)):
            action()
            self.oracle.check()
            if step % CHECK_LOGS_EVERY == 0:
                self.oracle.check_logs()
        self.heal()
        self.oracle.check()
        self.oracle.check_logs()
        self.oracle.check_healed()

    # What may happen.

    def some_broker(self) -> int | None:
        alive = sorted(self.cluster.brokers)
        return self.rng.choice(alive) if alive else None

    def write(self) -> None:
        leaders = [b for b, broker in sorted(self.cluster.brokers.items()) if broker.partition.is_leader]
        if leaders:
            self.cluster.append(self.rng.choice(leaders))

    def ask(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.cluster.brokers[broker].ask()

    def transmit(self) -> None:
        network = self.cluster.network
        if network:
            # Mostly in order, sometimes very late.
            message = network[0] if self.rng.random() < 0.6 else self.rng.choice(network)
            (self.cluster.lose if self.rng.random() < self.loss else self.cluster.deliver)(message)

    def learn(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.cluster.learn(broker)

    def pass_time(self) -> None:
        self.cluster.now_ms += self.rng.choice([1, 5, 20, LAG_MS_MAX])

    def shrink(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.ask_for(broker.partition.maybe_shrink_isr(self.cluster.now_ms))

    def elect(self) -> None:
        controller = self.cluster.controller
        others = [r for r in controller.candidates() if r != controller.state.leader]
        if others:
            controller.elect([self.rng.choice(others)])

    def kill(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.cluster.kill(broker)

    def cut_power(self) -> None:
        """One at a time, and only while another has all that was acknowledged: Kafka promises no more (§14.8.2)."""
        broker = self.some_broker()
        state = self.cluster.controller.state
        hold_all = set(state.isr) | state.elr
        if broker is not None and hold_all - {broker} and not hold_all & self.cluster.unwell:
            self.cluster.cut_power(broker, self.rng.choice([0, self.rng.randrange(1, 1000)]))

    def restart(self) -> None:
        down = [broker for broker in BROKERS if broker not in self.cluster.brokers]
        if down:
            self.cluster.restart(self.rng.choice(down))

    def fence(self) -> None:
        """The session of a broker that is down, rarely of one that is not, is over."""
        state = self.cluster.controller.state
        silent = sorted(state.live - set(self.cluster.brokers))
        if silent:
            self.cluster.controller.fence(self.rng.choice(silent))

    def flush(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.cluster.brokers[broker].log.flush()

    def checkpoint(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.directory.high_watermark_checkpoint({("t", 0): broker.partition.high_watermark}).write()

    # And then it stops.

    def heal(self) -> None:
        """Everybody comes back, every message arrives, and the brokers have time."""
        cluster = self.cluster
        for broker in BROKERS:
            if broker not in cluster.brokers:
                cluster.restart(broker)
        cluster.controller.maybe_elect()
        for _ in range(40):
            cluster.run(rounds=1)
            self.shrink()
            self.oracle.check()
            if self.is_quiet():
                break
        cluster.run(rounds=4)
        if cluster.controller.state.leader == NO_LEADER or len(cluster.controller.state.isr) < len(BROKERS):
            raise Violation(f"no progress after healing: {cluster.controller.state}")

    def is_quiet(self) -> bool:
        ends = {broker.log.log_end_offset for broker in self.cluster.brokers.values()}
        ends |= {broker.partition.high_watermark for broker in self.cluster.brokers.values()}
        return len(ends) == 1 and len(self.cluster.controller.state.isr) == len(BROKERS)


def first_violation(kinds: Kinds, seeds: range) -> tuple[int, Violation] | None:
    for seed in seeds:
        try:
            Walk(seed, kinds).run()
        except Violation as violation:
            return seed, violation
    return None
