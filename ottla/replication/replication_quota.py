"""How fast throttled replicas may be copied: bytes per second over a window, for what one broker sends or receives.

Kafka's `ReplicationQuotaManager`: each broker has a quota for what it sends as a leader and one for what it receives as
a follower. Topics say which of their replicas are throttled. All bytes of these count, also to or from replicas in
sync; but only those that are not in sync wait while the rate is exceeded.

The window is made of samples. Bytes of a sample leave it together; its length is from the first sample that is left,
and at least one sample, so that the first bytes after a pause are not an infinite rate.
"""

from collections import deque
from collections.abc import Iterable

UNLIMITED = 2**63 - 1
SAMPLES = 11
SAMPLE_MS = 1000


class ReplicationQuota:
    def __init__(self, *, samples: int = SAMPLES, sample_ms: int = SAMPLE_MS) -> None:
        self.bytes_per_s = UNLIMITED
        self.is_active = False
        """Whether any replica is throttled: while none is, nothing else needs to be asked."""
        self._samples_max = samples
        self._sample_ms = sample_ms
        # Of a topic the throttled partitions, None for all.
        self._throttled: dict[str, frozenset[int] | None] = {}
        # [begin, bytes], the oldest first.
        self._samples: deque[list[int]] = deque()

    def throttle_all(self, topic: str) -> None:
        self._throttled[topic] = None
        self.is_active = True

    def throttle(self, topic: str, partitions: Iterable[int]) -> None:
        """These of the topic's partitions and no others; none is the end of it."""
        throttled = frozenset(partitions)
        if throttled:
            self._throttled[topic] = throttled
        else:
            self._throttled.pop(topic, None)
        self.is_active = bool(self._throttled)

    def is_throttled(self, topic: str, partition: int) -> bool:
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Throttled replicas were sent, or have received, so many bytes."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._sample_ms:
            samples.append([now_ms, 0])
            if len(samples) > self._samples_max:
                samples.popleft()
        samples[-1][1] += size_bytes

    def is_exceeded(self, now_ms: int) -> bool:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._samples_max * self._sample_ms:
            samples.popleft()
        if not samples:
            return False
        window_ms = max(now_ms - samples[0][0], self._sample_ms)
        return sum(size for _, size in samples) * 1000 > self.bytes_per_s * window_ms
