"""A log whose only segment is nearly full of 100-byte batches, and takes no time to write."""

import struct
from pathlib import Path

from ottla.protocol.records.batch import assign_offset_and_epoch
from ottla.protocol.records.record import Record, build_batch
from ottla.storage import checkpoints
from ottla.storage.files import OsFileSystem
from ottla.storage.leader_epoch_cache import EpochEntry, build_epochs
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.recovery import LogHistory, find_log

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 100
TAIL_BYTES = 1 << 20
INDEX_INTERVAL_BYTES = 4100


def sparse_log(directory: Path, size: int) -> Log:
    """Only the end of the segment is written; no reader may look before it, where only zeros are."""
    directory.mkdir()
    producer = {"producer_id": 7, "producer_epoch": 0}
    padding = BATCH_BYTES - len(
        build_batch([Record(timestamp=NOW_MS, key=None, value=b"")], **producer, base_sequence=0)
    )
    batch = build_batch([Record(timestamp=NOW_MS, key=None, value=bytes(padding))], **producer, base_sequence=0)
    assert len(batch) == BATCH_BYTES
    count = size // BATCH_BYTES
    first_written = count - TAIL_BYTES // BATCH_BYTES
    with (directory / "00000000000000000000.log").open("wb") as file:
        file.truncate(first_written * BATCH_BYTES)
        file.seek(first_written * BATCH_BYTES)
        for offset in range(first_written, count):
            assign_offset_and_epoch(batch, 0, offset, 0)
            file.write(batch)
    every = INDEX_INTERVAL_BYTES // BATCH_BYTES
    entries = range(every, count, every)
    (directory / "00000000000000000000.index").write_bytes(
        b"".join(struct.pack(">ii", n, n * BATCH_BYTES) for n in entries)
    )
    (directory / "00000000000000000000.timeindex").write_bytes(
        b"".join(struct.pack(">qi", NOW_MS - count + n, n) for n in entries)
    )
    (directory / f"{count:020}.snapshot").write_bytes(ProducerStateManager().snapshot_bytes())
    (directory / checkpoints.LEADER_EPOCHS).write_bytes(build_epochs([EpochEntry(0, 0)]))
    files, config, history = OsFileSystem(), LogConfig(), LogHistory(was_closed_cleanly=True)
    found = find_log(files, directory, config=config, history=history, notices=lambda _: None)
    return found.log(files, directory, "t", 0, config, NOW_MS)
