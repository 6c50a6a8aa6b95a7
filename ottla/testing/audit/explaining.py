"""Which fault rule may be behind a finding: one that acted on a request of its kind, of the same client or about the
same partition or group."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.testing.audit.findings import Finding, Kind

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Fault

_OF_PRODUCE: Final = ("Produce", "InitProducerId")
_OF_FETCH: Final = ("Fetch", "ListOffsets")
_OF_COMMIT: Final = ("OffsetCommit", "OffsetFetch")
_OF_MEMBERS: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator")
_APIS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.B1: _OF_PRODUCE,
    Kind.B2: _OF_PRODUCE,
    Kind.B3: _OF_PRODUCE,
    Kind.B4: _OF_FETCH,
    Kind.B5: _OF_FETCH,
    Kind.B6: _OF_FETCH,
    Kind.B7: (*_OF_COMMIT, *_OF_MEMBERS),
    Kind.B9: ("Fetch",),
    Kind.P1: _OF_PRODUCE,
    Kind.P2: (*_OF_FETCH, *_OF_COMMIT),
    Kind.P3: (*_OF_FETCH, *_OF_COMMIT),
    Kind.P4: (*_OF_FETCH, *_OF_COMMIT, *_OF_MEMBERS),
    Kind.P5: _OF_FETCH,
    Kind.P6: ("EndTxn", "AddPartitionsToTxn", "WriteTxnMarkers"),
    Kind.P7: _OF_MEMBERS,
    Kind.P8: _OF_PRODUCE,
    Kind.P9: ("JoinGroup", "SyncGroup", "Metadata"),
}


def explained(finding: Finding, faults: "Iterable[Fault]") -> Finding:
    """The finding with the first such rule, or as it was."""
    apis = _APIS.get(finding.kind, ())
    places = finding.where.split()
    for fault in faults:
        for hit in fault.hit_log:
            is_about_it = not hit.units or any(unit in places for unit in hit.units)
            if hit.api in apis and (is_about_it or (finding.client_id and hit.client_id == finding.client_id)):
                return finding.explained(f"fault rule {fault.id!r}")
    return finding
