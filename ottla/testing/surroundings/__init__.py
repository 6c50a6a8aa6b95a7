"""What brokers of a test have around them, and how it fails: other brokers, links, disks, and their own processes.

kafka.brokers[2].kill()
kafka.links.cut(1, to=2)
kafka.disk(2).full()
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.surroundings.disks import BrokerDisk, DiskError
    from ottla.testing.surroundings.links import LinkError, Links

__all__ = ["BrokerDisk", "DiskError", "LinkError", "Links"]

_EXPORTS = {
    "BrokerDisk": "ottla.testing.surroundings.disks",
    "DiskError": "ottla.testing.surroundings.disks",
    "LinkError": "ottla.testing.surroundings.links",
    "Links": "ottla.testing.surroundings.links",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: a handle needs less.
    if name in _EXPORTS:
        from importlib import import_module

        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
