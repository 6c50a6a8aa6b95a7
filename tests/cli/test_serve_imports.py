"""What `ottla serve` has imported when it is idle: all that a broker of its own process pays for."""

import subprocess
import sys
from pathlib import Path

DEFERRED_WORK_DONE = "deferred start work done"
STORY = """
import gc, sys
from ottla.cli import serve_options

collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))

def imported():
    sys.exit(len(collections))

gc.freeze = imported
serve_options.serve({})
"""


def test_an_idle_broker_has_not_imported_what_prints_tables(tmp_path: Path) -> None:
    """rich, which commands print with, would come with structlog, and with it a seventh of an idle broker's memory."""
    command = [sys.executable, "-X", "importtime", "-m", "ottla", "serve"]
    options = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--log-level", "debug"]
    imported: set[str] = set()
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        for line in broker.stderr:
            if line.startswith("import time:"):
                imported.add(line.rpartition("|")[2].strip())
            elif DEFERRED_WORK_DONE in line:
                break
        broker.terminate()
        broker.stderr.read()

    assert broker.returncode == 0
    assert {"structlog.dev", "ottla.broker.broker"} <= imported
    assert not [name for name in imported if name.startswith("rich.")]


def test_no_garbage_is_collected_while_a_broker_is_imported() -> None:
    assert subprocess.run([sys.executable, "-c", STORY], timeout=60).returncode == 0
