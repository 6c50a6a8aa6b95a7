"""The pages /metrics and /metrics/kafka: rendered in slices, with the loop free between them (docs/operators.md §4.8).

A slice is so many lines and not so many milliseconds, which would be others in every run of a simulation.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from ottla.broker.admin.http import HttpRequest, HttpResponse
from ottla.broker.admin.metrics.exposition import Format, asked_format, header, lines
from ottla.broker.admin.metrics.families import Family
from ottla.broker.admin.metrics.source import SourceOfBroker
from ottla.broker.runtime import Runtime, next_step

# One to three milliseconds.
ITEMS_PER_SLICE = 200
_GZIP_WINDOW = 31
_FASTEST = 1


class ScrapeTurns:
    """One page is rendered at a time, for the sources are shared."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last_duration_ns = 0


class MetricsPage:
    def __init__(
        self,
        runtime: Runtime,
        families: Sequence[Family],
        sources: Callable[[], Iterable[SourceOfBroker]],
        turns: ScrapeTurns,
    ) -> None:
        self._runtime = runtime
        self._families = families
        self._sources = sources
        self._turns = turns
        # What is being rendered now, for all who ask during that.
        self._under_way: dict[Format, asyncio.Task[list[bytes]]] = {}

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        wanted = asked_format(request.headers.get("accept", ""))
        task = self._under_way.get(wanted)
        if task is None:
            task = self._under_way[wanted] = self._runtime.start_task(self._render(wanted), "scrape")
        # A scraper that goes away does not end it for the others.
        body = await asyncio.shield(task)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return HttpResponse(200, body, wanted.value)
        return HttpResponse(200, await _compressed(body), wanted.value, (("Content-Encoding", "gzip"),))

    def stop(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def _render(self, wanted: Format) -> list[bytes]:
        try:
            async with self._turns.lock:
                began_ns = self._runtime.clock.now_ns()
                pieces: list[bytes] = []
                texts = self._texts(wanted)
                while some := list(islice(texts, ITEMS_PER_SLICE)):
                    pieces.append("".join(some).encode("utf-8", "replace"))
                    await next_step()
                pieces.append(wanted.end.encode())
                self._turns.last_duration_ns = self._runtime.clock.now_ns() - began_ns
                return pieces
        finally:
            del self._under_way[wanted]

    def _texts(self, wanted: Format) -> Iterator[str]:
        """An item is some text, or an empty one for work that gave none."""
        sources = list(self._sources())
        for source in sources:
            for _ in source.prepare():
                yield ""
        for family in self._families:
            is_first = True
            for source in sources:
                for sample in source.samples(family.name):
                    if sample is None:
                        yield ""
                        continue
                    if is_first:
                        is_first = False
                        yield header(family, wanted)
                    yield lines(family, sample)


async def _compressed(body: Sequence[bytes]) -> list[bytes]:
    gzip = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP_WINDOW)
    pieces: list[bytes] = []
    for piece in body:
        pieces.append(gzip.compress(piece))
        await next_step()
    pieces.append(gzip.flush())
    return pieces
