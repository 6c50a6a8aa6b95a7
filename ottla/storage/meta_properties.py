"""Whose data directory this is: `meta.properties`.

A broker that opened the directory of another node or cluster would mix two histories beyond repair, so it refuses, and
it refuses a directory that holds other people's files. A directory of Apache Kafka has the same `meta.properties`, and
logs in the same format; but its topics are in a log of Kafka's own, and here it would be a broker without any.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.storage import checkpoints
from ottla.storage.files import FileSystem, write_atomically

VERSION = "1"
OWN_FILES_PREFIX = "ottla-"
IGNORED_NAMES = {".lock", "lost+found"}
KAFKAS_METADATA = ("__cluster_metadata-0", "bootstrap.checkpoint")
TESTING_MARKER = f"{OWN_FILES_PREFIX}testing"
"""A file in data directories of brokers in testing mode, whose time stamps may be of a clock that was set."""
JAVA_COMMENT = b"#"
"""Java begins every properties file with one, the date."""


class DataDirectoryError(Exception):
    """The data directory cannot be used at all. The message is one sentence for the operator."""


class MetaProperties(NamedTuple):
    """The ids are in Kafka's text form."""

    cluster_id: str
    node_id: int
    directory_id: str


def claim(
    files: FileSystem, path: Path, *, node_id: int, cluster_id: str | None, new_id: Callable[[], str]
) -> MetaProperties:
    """Those of the directory, which becomes this node's if it is empty. Raises DataDirectoryError or OSError."""
    meta_path = path / checkpoints.META_PROPERTIES
    if not files.exists(meta_path):
        _refuse_foreign(files, path)
        found = MetaProperties(cluster_id or new_id(), node_id, new_id())
        write_atomically(files, meta_path, checkpoints.build_properties(_properties_of(found)))
        return found
    found = _parse(path, files.read_bytes(meta_path), new_id)
    if found.node_id != node_id:
        raise DataDirectoryError(f"data directory {path} belongs to node {found.node_id}, this is node {node_id}")
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise DataDirectoryError(
            f"data directory {path} belongs to cluster {found.cluster_id}, this broker to {cluster_id}"
        )
    return found


def refuse_directory_of_kafka(files: FileSystem, path: Path) -> None:
    """Call it before anything is written there. Raises DataDirectoryError or OSError."""
    names = files.list_directory(path) if files.is_directory(path) else []
    if any(name.startswith(OWN_FILES_PREFIX) for name in names):
        return
    found = [name for name in KAFKAS_METADATA if name in names]
    meta_path = path / checkpoints.META_PROPERTIES
    if not found and files.exists(meta_path) and files.read_bytes(meta_path).startswith(JAVA_COMMENT):
        found = ["a meta.properties written by Java"]
    if found:
        raise DataDirectoryError(
            f"directory {path} holds {found[0]}: it is a data directory of Apache Kafka, whose topics Ottla cannot "
            "take over from there; use another directory"
        )


def refuse_directory_of_tests(files: FileSystem, path: Path) -> None:
    """For a broker that is not in testing mode. Raises DataDirectoryError or OSError."""
    marker = path / TESTING_MARKER
    if files.exists(marker):
        raise DataDirectoryError(
            f"data directory {path} has the file {marker.name}: it is that of a broker in testing mode, whose time may "
            "have been set; use another directory, or --testing"
        )


def refuse_directory_of_others(files: FileSystem, path: Path) -> None:
    """Of a directory without a metadata file: it must be empty, for the metadata of its brokers would be elsewhere.
    Raises DataDirectoryError or OSError."""
    refuse_directory_of_kafka(files, path)
    if files.exists(path / checkpoints.META_PROPERTIES):
        raise DataDirectoryError(
            f"data directory {path} is that of a broker whose metadata is elsewhere: in etcd, or in the directory above"
        )
    _refuse_foreign(files, path)


def known_cluster_id(files: FileSystem, path: Path) -> str | None:
    """Of the cluster the directory belongs to, as far as that can be read without claiming it."""
    try:
        return checkpoints.parse_properties(files.read_bytes(path / checkpoints.META_PROPERTIES)).get("cluster.id")
    except (OSError, ValueError):
        return None


def _parse(path: Path, content: bytes, new_id: Callable[[], str]) -> MetaProperties:
    try:
        fields = checkpoints.parse_properties(content)
    except ValueError as error:
        raise DataDirectoryError(f"meta.properties in data directory {path} is not readable: {error}") from error
    version = fields.get("version")
    if version != VERSION:
        raise DataDirectoryError(
            f"data directory {path} has format version {version}, this broker knows version {VERSION}"
        )
    try:
        return MetaProperties(fields["cluster.id"], int(fields["node.id"]), fields.get("directory.id") or new_id())
    except (KeyError, ValueError) as error:
        raise DataDirectoryError(f"meta.properties in data directory {path} lacks a valid {error}") from error


def _properties_of(meta: MetaProperties) -> dict[str, str]:
    return {
        "version": VERSION,
        "cluster.id": meta.cluster_id,
        "node.id": str(meta.node_id),
        "directory.id": meta.directory_id,
    }


def _refuse_foreign(files: FileSystem, path: Path) -> None:
    temporary = checkpoints.META_PROPERTIES + ".tmp"
    for name in files.list_directory(path):
        if name not in IGNORED_NAMES and name != temporary and not name.startswith(OWN_FILES_PREFIX):
            raise DataDirectoryError(
                f"directory {path} holds {name} but no meta.properties: it is no data directory, and not empty"
            )
