"""What a broker keeps: its data directory, and the metadata store of its cluster. Both are opened before it has any
part, and closed after all of them.

A broker without a store of its cluster keeps the metadata itself, in a file of the data directory; that file is opened
when the directory is locked, and known to be a directory of ours.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.broker.metadata.store_bootstrap import agreed_cluster_id, random_id, read_all, stored_topic_configs
from ottla.broker.runtime import LoopRuntime, StartError
from ottla.broker.upkeep.data_directory import Boot, closed_cleanly, opened
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.store import Entry, MetadataStore
from ottla.storage.files import FileSystem, reason_of
from ottla.storage.log_directory import Checkpoint, LogDirectory
from ottla.storage.meta_properties import known_cluster_id, refuse_directory_of_kafka, refuse_directory_of_tests

METADATA_FILE = "ottla-metadata.sqlite"


class _OwnStore:
    """The store in the data directory, opened by the first that needs it."""

    def __init__(self, runtime: LoopRuntime, data_dir: Path) -> None:
        self._runtime = runtime
        self._path = data_dir / METADATA_FILE
        self._store: EmbeddedStore | None = None

    def opened(self) -> EmbeddedStore:
        if self._store is None:
            self._store = EmbeddedStore(self._path, post=self._post, offload=self._runtime.offload)
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _post(self, action: Callable[[], None]) -> None:
        self._runtime.loop.call_soon(action)


class BrokerData(NamedTuple):
    runtime: LoopRuntime
    directory: LogDirectory
    boot: Boot
    store: MetadataStore
    is_alone: bool
    """The broker keeps its metadata itself and is a cluster of one: its loop serves no other broker."""

    @property
    def cluster_id(self) -> str:
        return self.directory.meta_properties.cluster_id

    @classmethod
    async def open(
        cls, runtime: LoopRuntime, files: FileSystem, path: Path, store: MetadataStore | None, boot_id: str | None
    ) -> "BrokerData":
        """Raises StartError, DataDirectoryError, StoreError; `store` is closed then."""
        own_store = _OwnStore(runtime, path)
        new_id = partial(random_id, runtime.rng)
        with ExitStack() as undo:
            undo.callback(own_store.close if store is None else store.close)
            try:
                refuse_directory_of_kafka(files, path)
                if not runtime.config.is_testing:
                    refuse_directory_of_tests(files, path)
            except OSError as error:
                raise StartError(f"cannot use data directory {path}: {reason_of(error)}") from error
            cluster_id, entries = None, None
            if store is not None:
                known_id = known_cluster_id(files, path)
                cluster_id, entries = await agreed_cluster_id(runtime, store, known_id, new_id=new_id)

            def stored_entries() -> Sequence[Entry]:
                return read_all(own_store.opened()) if entries is None else entries

            def present_boot() -> Boot:
                return Boot(runtime.log.storage, files, path, boot_id)

            open_directory = partial(
                LogDirectory.open,
                path,
                node_id=runtime.node_id,
                cluster_id=cluster_id,
                new_id=new_id,
                config_of=stored_topic_configs(runtime.config, stored_entries),
                now_wall_ms=runtime.broker_clock.wall_ms(),
                files=files,
                when_clean=lambda: present_boot().confirm(),
                # After a kill from here on, the logs have no trace of the loss any more.
                when_lost=lambda: present_boot().forget(),
                progress=runtime.recovery,
            )
            directory = await opened(runtime, open_directory)
            undo.callback(directory.close, clean=False)
            data = cls(runtime, directory, present_boot(), store or own_store.opened(), is_alone=store is None)
            undo.pop_all()
        return data

    async def close(self, high_watermarks: Checkpoint) -> bool:
        """Makes all data durable; whether that could be done. The store stays open."""
        return await closed_cleanly(self.runtime, self.directory, high_watermarks, self.boot)

    def abandon(self) -> None:
        """Leaves the data as a killed process does."""
        self.directory.close(clean=False)
        self.store.close()
