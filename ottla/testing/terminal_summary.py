"""What the pytest plugin says at the end of a session in which there were brokers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.testing.profile import LAXER, TEST_SETTINGS

if TYPE_CHECKING:
    from ottla.testing.shared.shared_broker import SharedBroker
    from ottla.testing.testbed_pool import TestbedPool

FOREIGN_SHOWN: Final = 10


class SessionOutcome(NamedTuple):
    """What is left of a session: `pool` of one with brokers of its own, `shared` of one whose workers shared them."""

    pool: "TestbedPool | None"
    shared: "SharedBroker | None"
    coverage_lines: Sequence[str]
    of_workers: Sequence[tuple[str, str, str]]
    """What the audit found in workers: test, kind and a line for each."""
    crashed_workers: Sequence[str]
    seed: int | None
    """By which fault rules choose."""

    @property
    def audited(self) -> list[tuple[str, str, str]]:
        return [*self.of_workers, *(() if self.pool is None else self.pool.audited)]


def summary(outcome: SessionOutcome, *, is_verbose: bool) -> Iterator[str]:
    """The lines; `is_verbose` adds each setting that differs from Kafka's and each finding of the audit."""
    pool, shared, audited = outcome.pool, outcome.shared, outcome.audited
    profiles = {*(() if pool is None else pool.profiles), *(() if shared is None else (shared.profile,))}
    if "test" in profiles:
        yield f"ottla: profile test, {len(TEST_SETTINGS)} settings differ from Kafka's; laxer: {', '.join(LAXER)}"
        if is_verbose:
            yield from (f"  {name}={value}" for name, value in TEST_SETTINGS.items())
    if (pool is not None and pool.uses_faults) or (shared is not None and shared.uses_faults):
        yield f"ottla: fault rules, --ottla-seed={outcome.seed}"
    if shared is not None:
        yield from _of_shared_broker(shared.foreign_topics())
    yield from (f"ottla: coverage: {line}" for line in outcome.coverage_lines)
    if audited or shared is not None or outcome.coverage_lines:
        for worker in outcome.crashed_workers:
            yield f"ottla: worker {worker} has crashed: what it had found and counted is missing"
    if audited:
        kinds = Counter(kind for _, kind, _ in audited)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"ottla: audit: {counts} in {len({test for test, _, _ in audited})} tests"
        if is_verbose:
            yield from (f"  {test}: {line}" for test, _, line in audited)


def _of_shared_broker(foreign: Sequence[str]) -> Iterator[str]:
    yield "ottla: the workers shared a broker, with isolation names"
    if foreign:
        names = ", ".join(foreign[:FOREIGN_SHOWN])
        what = f"{len(foreign)} topics have no worker's prefix, so workers may meet there, and no audit has them"
        yield f"ottla: {what}: {names}"
