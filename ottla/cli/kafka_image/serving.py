"""`ottla serve --kafka-env`: what the variables say in the place of options, whose data directory it is, and what is
printed when the broker is ready."""

import os
from collections.abc import Mapping
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from ottla.broker.logging import LazyLog
from ottla.broker.metadata.store_bootstrap import random_id
from ottla.broker.runtime import StartError
from ottla.cli.kafka_image.settings import ImageSettings, image_settings
from ottla.storage.files import OsFileSystem, reason_of
from ottla.storage.meta_properties import DataDirectoryError, claim, known_cluster_id, refuse_directory_of_kafka

DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
"""Of new data, as in apache/kafka's image; any 22 characters do."""
FORMATTED_MARK = "ottla-formatted"
"""A file in a data directory whose cluster id was given to `kafka-storage format`, and not by CLUSTER_ID."""


class KafkaImage(NamedTuple):
    settings: ImageSettings
    data_dir: Path

    def claim_data_dir(self) -> None:
        """Gives new data their cluster id. Data that exist keep theirs: where CLUSTER_ID is another one they are
        refused, unless `kafka-storage format` gave them theirs. Raises StartError."""
        wanted = self.settings.cluster_id
        known = known_cluster_id(OsFileSystem(), self.data_dir)
        if known is not None and (wanted is None or (self.data_dir / FORMATTED_MARK).exists()):
            wanted = known
        try:
            claim_directory(self.data_dir, self.settings.node_id, wanted or DEFAULT_CLUSTER_ID)
        except DataDirectoryError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(f"cannot use data directory {self.data_dir}: {reason_of(error)}") from None

    def ready_lines(self) -> list[str]:
        """Of Kafka's log, for programs that wait for one of them: when all listeners accept, and not before."""
        node_id = self.settings.node_id
        return [
            f"[BrokerLifecycle id={node_id}] Transitioning from RECOVERY to RUNNING",
            f"[KafkaServer id={node_id}] started",
            "Kafka Server started",
        ]

    def report(self, log: LazyLog) -> None:
        """One line for each class of properties that do not do what their names say."""
        remarks = (
            ("properties without effect", self.settings.without_effect),
            ("properties that are not known", self.settings.unknown),
            ("KAFKA_CFG_* is taken for KAFKA_*", self.settings.other_vendor),
        )
        for event, names in remarks:
            if names:
                log.warning(event, names=list(names))


def kafka_image(data_dir: Path, mounted: str | None, environment: Mapping[str, str] | None = None) -> KafkaImage:
    """A broker that is configured by variables and by the text of a file; `data_dir` is where its data are if neither
    says so. Raises ConfigError."""
    settings = image_settings(os.environ if environment is None else environment, mounted or "")
    return KafkaImage(settings, settings.data_dir or data_dir)


def claim_directory(directory: Path, node_id: int, cluster_id: str) -> None:
    """Makes it where it is missing, and this node's and this cluster's where it is empty. Raises DataDirectoryError
    where it is another's; OSError."""
    files = OsFileSystem()
    refuse_directory_of_kafka(files, directory)
    files.make_directory(directory)
    claim(files, directory, node_id=node_id, cluster_id=cluster_id, new_id=new_cluster_id)


def new_cluster_id() -> str:
    """Also of a directory: Kafka's form of a random UUID."""
    return random_id(SystemRandom())
