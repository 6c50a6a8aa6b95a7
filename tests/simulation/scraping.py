"""A scrape of the metrics, and a look at the health, of a broker at any moment of a run: neither ever fails."""

from math import isfinite

from ottla.broker.admin.metrics.families import FAMILIES
from ottla.broker.admin.metrics.kafka_families import KAFKA_FAMILIES
from ottla.broker.admin.metrics.source import SourceOfBroker
from ottla.broker.admin.probe import HealthProbe
from ottla.broker.broker import Broker
from tests.simulation.judge import Judge

FAMILY_NAMES = [family.name for family in (*FAMILIES, *KAFKA_FAMILIES)]


class Scraper:
    """Reads what the pages of one broker are made of. It asks through no connection, and so changes nothing."""

    def __init__(self, judge: Judge, broker: Broker) -> None:
        parts = broker.parts
        self._judge = judge
        # Not started: there is no file system whose room could be measured.
        self._probe = HealthProbe(
            parts.runtime,
            parts.lifecycle,
            parts.metadata,
            parts.log_directory,
            parts.log_manager,
            parts.group_loader,
            parts.events,
        )
        parts.count_for_metrics()
        self._source = SourceOfBroker("", parts.metric_sources(self._probe))

    def scrape(self) -> None:
        self._probe.facts()
        for _ in self._source.prepare():
            pass
        for name in FAMILY_NAMES:
            for sample in self._source.samples(name):
                if sample is not None and isinstance(sample[1], float) and not isfinite(sample[1]):
                    self._judge.violated("metrics", f"{name}{{{sample[0]}}} is {sample[1]}")
        self._judge.counts["scrapes"] += 1
