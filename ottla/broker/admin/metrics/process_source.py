"""Metrics of the process, as Prometheus' client libraries name them; from /proc, where there is one."""

import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ottla.broker.admin.metrics.exposition import Sample, labels
from ottla.broker.admin.metrics.page import ScrapeTurns
from ottla.broker.admin.metrics.source import Samples
from ottla.broker.histogram import Histogram

_SELF = Path("/proc/self")
_DESCRIPTORS = _SELF / "fd"


class ProcessSource:
    def __init__(self, turns: ScrapeTurns) -> None:
        self._turns = turns
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        self._info = labels(version=_version(), python=sys.version.split()[0], loop=loop)
        self._started_s = _started_s()
        # As of the last pass; None where it is not known.
        self._descriptors: int | None = None
        self._pauses = Histogram()
        self._pause_began_ns = 0
        gc.callbacks.append(self._collecting)
        self.families: Mapping[str, Callable[[], Samples]] = {
            "ottla_build_info": lambda: [(self._info, 1)],
            "ottla_gc_collections_total": lambda: [
                (labels(generation=generation), each["collections"]) for generation, each in enumerate(gc.get_stats())
            ],
            "ottla_gc_pause_seconds": lambda: [("", self._pauses)],
            "process_cpu_seconds_total": lambda: [("", time.process_time())],
            "process_resident_memory_bytes": _resident,
            "process_open_fds": lambda: [] if self._descriptors is None else [("", self._descriptors)],
            "process_max_fds": lambda: [("", resource.getrlimit(resource.RLIMIT_NOFILE)[0])],
            "process_start_time_seconds": lambda: [] if self._started_s is None else [("", self._started_s)],
            "ottla_scrape_duration_seconds": lambda: [("", self._turns.last_duration_ns / 1e9)],
        }

    def close(self) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._pause_began_ns = time.perf_counter_ns()
        else:
            self._pauses.observe(time.perf_counter_ns() - self._pause_began_ns)

    def prepare(self) -> Iterator[None]:
        """Counts the descriptors. Linux has their number since 6.2, as the size of their directory. To list ten
        thousand at once would take a hundred milliseconds."""
        self._descriptors = None
        with suppress(OSError):
            count = _DESCRIPTORS.stat().st_size
            if not count:
                with os.scandir(_DESCRIPTORS) as found:
                    for _ in found:
                        count += 1
                        yield
            self._descriptors = count


def _version() -> str:
    try:
        return version("ottla")
    except PackageNotFoundError:
        return "unknown"


def _resident() -> list[Sample]:
    with suppress(OSError):
        pages = int((_SELF / "statm").read_text(encoding="ascii").split()[1])
        return [("", pages * resource.getpagesize())]
    return []


def _started_s() -> float | None:
    with suppress(OSError):
        ticks = int((_SELF / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - since_boot_s
    return None
