"""Fault rules: what requests a rule matches, what it does with them, and where an error goes in a response.

from ottla.testing.faults import Drop, Error

kafka.fault(api="Produce", topic="orders", do=Error("NOT_ENOUGH_REPLICAS"), times=3)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.faults.actions import (
        Bandwidth,
        Call,
        Corrupt,
        Delay,
        Disconnect,
        Drop,
        Duplicate,
        Error,
        Hold,
        Observe,
        Rewrite,
        Slice,
        ThrottleClient,
        TruncateResponse,
    )
    from ottla.testing.faults.faults import Fault, Faults, HitsMissing
    from ottla.testing.faults.rule_values import RuleError

__all__ = [
    "Bandwidth",
    "Call",
    "Corrupt",
    "Delay",
    "Disconnect",
    "Drop",
    "Duplicate",
    "Error",
    "Fault",
    "Faults",
    "HitsMissing",
    "Hold",
    "Observe",
    "Rewrite",
    "RuleError",
    "Slice",
    "ThrottleClient",
    "TruncateResponse",
]

_ELSEWHERE = {
    "Fault": "ottla.testing.faults.faults",
    "Faults": "ottla.testing.faults.faults",
    "HitsMissing": "ottla.testing.faults.faults",
    "RuleError": "ottla.testing.faults.rule_values",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: brokers without rules need none of it.
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(_ELSEWHERE.get(name, "ottla.testing.faults.actions")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
