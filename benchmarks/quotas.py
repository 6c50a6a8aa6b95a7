"""How exactly a client is held to a byte quota: `python -m benchmarks quotas`.

A client on one connection produces as fast as it may. With a window of two samples each half minute has the quota; with
Kafka's eleven a window's bytes may come at once, so that a multiple of windows is measured, after the first burst.
"""

import time
from typing import NamedTuple

from benchmarks import processes, raw_client
from benchmarks.figure import NO_BASELINE, Figure
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)

BYTES_PER_S = 1 << 20
REQUEST_BYTES = 16 << 10
TOPIC = "limited"


class Run(NamedTuple):
    window_samples: int
    begin_s: float
    """What was sent before is not looked at: the burst of a client that has rested."""
    seconds: float
    at_most: float | None


RUNS = (Run(2, 3, 30, 0.05), Run(11, 12, 44, None))


def figures() -> list[Figure]:
    return [
        Figure(
            f"byte quota over {run.seconds:g} s, quota.window.num={run.window_samples}: rate beside the quota, off by",
            NO_BASELINE,
            "",
            [(_off_by(run), 1)],
            at_most=run.at_most,
        )
        for run in RUNS
    ]


def _off_by(run: Run) -> float:
    with processes.broker(quota_window_num=str(run.window_samples)) as server:
        client = raw_client.when_serving(server.port)
        raw_client.create_topic(client, TOPIC)
        _set_quota(client)
        frame = raw_client.produce_frame(TOPIC, raw_client.batch_of_size(REQUEST_BYTES, 1024), acks=1)
        began = time.monotonic()
        end_s = run.begin_s + run.seconds
        sent_bytes = 0
        while (now_s := time.monotonic() - began) < end_s:
            client.pipeline(frame, 1, 1)
            if now_s >= run.begin_s:
                sent_bytes += len(frame)
        client.close()
    return abs(sent_bytes / run.seconds / BYTES_PER_S - 1)


def _set_quota(client: raw_client.RawClient) -> None:
    """Of every client."""
    user = EntityData(entity_type="user", entity_name=None)
    limit = OpData(key="producer_byte_rate", value=float(BYTES_PER_S))
    request = AlterClientQuotasRequest(entries=[EntryData(entity=[user], ops=[limit])])
    client.call(request, AlterClientQuotasResponse, 1)
