"""What a listener costs the start: what takes long to import waits until it is asked for (docs/operators.md §2.4)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
STORY = """
import asyncio, sys, tempfile
from pathlib import Path
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.server.network import TcpNetwork

COSTLY = ("h11", "importlib.metadata", "ottla.broker.admin.inside", "ottla.broker.admin.metrics.families",
          "ottla.coordinator.group_shard", "ottla.broker.quotas.managers")

def show(when):
    print(when, *(name for name in COSTLY if name in sys.modules))

async def story():
    config = ServerConfig({"ottla.admin.listener": "127.0.0.1:0"})
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(config, data_dir=Path(directory), port=0, log=LazyLog(level="error"))
        await broker.start()
        show("started")
        from tests.broker.admin.pages import get
        for page in ("/health/ready", "/health/restart-safe"):
            assert (await get(TcpNetwork(), broker.admin_url, page)).status == 200
        show("probed")
        assert (await get(TcpNetwork(), broker.admin_url, "/metrics")).status == 200
        show("scraped")
        await broker.stop()

asyncio.run(story())
"""


def test_what_takes_long_is_imported_when_it_is_asked_for() -> None:
    # Without the modules that the environment imports for itself, but with its packages.
    paths = f"import sys; sys.path[:] = {[str(ROOT), *sys.path]!r}\n"
    command = [sys.executable, "-S", "-c", paths + STORY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    started, probed, scraped = done.stdout.splitlines()
    assert started == "started"
    assert probed == "probed h11"
    assert scraped.split() == [
        "scraped",
        "h11",
        "importlib.metadata",
        "ottla.broker.admin.inside",
        "ottla.broker.admin.metrics.families",
        "ottla.coordinator.group_shard",
        "ottla.broker.quotas.managers",
    ]
