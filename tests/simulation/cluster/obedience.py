"""What is committed about settings is obeyed: by every broker as soon as its metadata shows it (I-39)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.cluster.image import MetadataImage
from tests.simulation.cluster.settings import SETTINGS, Configs, Setting, in_force
from tests.simulation.cluster.truth import Truth
from tests.simulation.judge import Judge

MIN_ISR = SETTINGS["min.insync.replicas"]


class _Leader(NamedTuple):
    """As it was last looked at."""

    leader_epoch: int
    high_watermark: int
    in_sync: int


class Obedience:
    """Of the whole cluster. `static`: the server properties that all brokers were given."""

    def __init__(self, judge: Judge, truth: Truth, static: Configs) -> None:
        self._judge = judge
        self._truth = truth
        self._static = static
        # By the partition of each life of a broker.
        self._leaders: dict[Any, _Leader] = {}

    def check_logs(self, owner: str, broker: Any) -> None:
        """After the broker has got another image: every log goes by what the image and its revision say."""
        defaults = self._truth.defaults_at(broker.metadata.image.revision)
        if defaults is not None:
            for wrong in self._wrong(broker, broker.metadata.image, defaults):
                self._judge.violated("I-39", f"{owner}: {wrong}")

    def note_leader(self, partition: Any) -> _Leader | None:
        """As it is after this step; what it was when it was last looked at."""
        before = self._leaders.get(partition)
        self._leaders[partition] = _Leader(partition.leader_epoch, partition.high_watermark, len(partition.isr))
        return before

    def check_commits(self, owner: str, broker: Any, partition: Any) -> None:
        """Of a leader that has had this image for longer than this step: its high watermark rises only while so many
        are in sync as that asks for."""
        before, needed = self.note_leader(partition), self._min_isr(broker, partition)
        now = self._leaders[partition]
        if needed is None or before is None or before.leader_epoch != now.leader_epoch:
            return
        if max(before.in_sync, now.in_sync) >= needed:
            return
        if now.high_watermark > before.high_watermark:
            how = f"{before.high_watermark} to {now.high_watermark} with {now.in_sync} in sync, {needed} are needed"
            self._judge.violated("I-39", f"{owner}: {partition.topic}-{partition.index} has committed {how}")
        self._judge.counts["records held back"] += partition.log.log_end_offset > now.high_watermark

    def disobeyed(self, broker: Any) -> list[str]:
        """At rest, against what is committed by now."""
        return list(self._wrong(broker, self._truth.image, self._truth.defaults))

    def kept_eligible(self) -> list[str]:
        """Partitions that have eligible leader replicas though enough are in sync."""
        truth, wrong = self._truth, []
        for topic, index, state in truth.image.partitions():
            needed = min(self._in_force(MIN_ISR, topic.configs, truth.defaults), len(state.replicas))
            if state.elr and len(state.isr) >= needed:
                wrong.append(f"{topic.name}-{index} is {state}, {needed} are needed")
        return wrong

    def _min_isr(self, broker: Any, partition: Any) -> int | None:
        """By the broker's metadata; None where that is not known."""
        image = broker.metadata.image
        topic, defaults = image.topic(partition.topic), self._truth.defaults_at(image.revision)
        if topic is None or topic.topic_id != partition.topic_id or defaults is None:
            return None
        return min(self._in_force(MIN_ISR, topic.configs, defaults), len(partition.replicas))

    def _wrong(self, broker: Any, image: MetadataImage, defaults: Configs) -> Iterator[str]:
        for partition in broker.replicas:
            topic = image.topic(partition.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                continue
            for setting in SETTINGS.values():
                wanted = self._in_force(setting, topic.configs, defaults)
                found = getattr(partition.log.config, setting.attribute)
                self._judge.counts["settings compared"] += 1
                if found != wanted:
                    yield f"{partition.topic}-{partition.index} has {setting.name} {found}, committed is {wanted}"
            wanted = min(self._in_force(MIN_ISR, topic.configs, defaults), len(partition.replicas))
            if partition.min_isr != wanted:
                yield f"{partition.topic}-{partition.index} asks for {partition.min_isr} in sync, committed is {wanted}"

    def _in_force(self, setting: Setting, own: Configs, defaults: Configs) -> Any:
        return in_force(setting, own, defaults, self._static)
