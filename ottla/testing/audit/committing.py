"""What groups committed, and what is known of their members: from OffsetCommit and from the facts of coordinators."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.coordinator.classic.causes import Cause
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_assignment
from ottla.protocol.primitives import DecodeError
from ottla.testing.audit.history import Assigned, Client, Commit, Removed
from ottla.testing.audit.ledger import AuditedConnection
from ottla.testing.wire import WireEvent

if TYPE_CHECKING:
    from ottla.coordinator.events import OffsetToCommit
    from ottla.coordinator.facts import Fact, GenerationCompleted, GenerationStarted, MemberAssigned, MemberJoined

KEPT_MAX = 100_000
"""Of commits, accepted or not, of members, of groups, and of generations."""
BY_SILENCE = (Cause.SESSION_EXPIRED, Cause.NOT_REJOINED, Cause.PENDING_SYNC_EXPIRED)
NO_GENERATION = -1


class CommitNotes:
    def __init__(self, number_of: Callable[[str | bytes, int], int], count: Callable[[], int]) -> None:
        """`number_of` a partition, -1 for one that is not audited; `count`: how many requests came so far."""
        self._number_of = number_of
        self._count = count
        self.commits: list[Commit] = []
        self.overflow = 0
        """How many commits, members and groups came after the last ones that are kept."""
        self.attempts: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.forgotten: dict[str, int] = {}
        self.set_offsets: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.members: dict[str, dict[str, Client]] = defaultdict(dict)
        self.shared: set[Client] = set()
        self.transactional: set[str] = set()
        self.removed: list[Removed] = []
        self.assigned: list[Assigned] = []
        self._attempted = 0
        self._joined = 0
        # The group that its client was a member of first.
        self._group_of: dict[Client, str] = {}
        self._generations: dict[str, GenerationStarted] = {}
        self._given: dict[str, dict[str, dict[str, tuple[int, ...]]]] = defaultdict(dict)

    # Requests.

    def asked(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        del audited
        started = self._generations.get(request.group_id)
        event.audit = (request, NO_GENERATION if started is None else started.generation, self._count())
        if self._attempted >= KEPT_MAX:
            self.overflow += 1
            event.audit = None
            return
        for topic in request.topics:
            for each in topic.partitions:
                place = request.group_id, self._number_of(topic.name, each.partition_index)
                self.attempts[place].append((self._count(), each.committed_offset))
                self._attempted += 1
        if request.generation_id_or_member_epoch == NO_GENERATION:
            # A tool has set them: what comes after is below or beyond as it likes.
            self.forgotten[request.group_id] = self._count() - 1

    def set_by_test(self, group_id: str, offsets: "Sequence[OffsetToCommit]") -> None:
        """Without a request. Whether they are accepted is not waited for: until then it is in doubt."""
        if self._attempted >= KEPT_MAX:
            self.overflow += 1
            return
        self.forgotten[group_id] = self._count()
        self._attempted += len(offsets)
        for each in offsets:
            place = group_id, self._number_of(each.topic, each.partition)
            self.set_offsets[place].append((self._count(), each.offset))

    def in_transaction(self, audited: AuditedConnection, event: WireEvent, request: Any) -> None:
        del audited, event
        if request.group_id in self.transactional or len(self.transactional) < KEPT_MAX:
            self.transactional.add(request.group_id)
        else:
            self.overflow += 1

    def answered(self, audited: AuditedConnection, event: WireEvent, response: Any) -> None:
        request, generation_then, number = event.audit
        refused = {
            (topic.name, each.partition_index)
            for topic in response.topics
            for each in topic.partitions
            if each.error_code
        }
        for topic in request.topics:
            for each in topic.partitions:
                partition = self._number_of(topic.name, each.partition_index)
                if partition < 0 or (topic.name, each.partition_index) in refused:
                    continue
                self.commits.append(
                    Commit(
                        number,
                        event.at_ns,
                        audited.number,
                        request.group_id,
                        request.member_id,
                        partition,
                        each.committed_offset,
                        request.generation_id_or_member_epoch,
                        generation_then,
                        audited.last,
                    )
                )

    # Facts.

    def observe(self, fact: "Fact", now_ms: int) -> None:
        """For the observers of a group coordinator."""
        # Imported here: a first record has no group.
        from ottla.coordinator import facts

        del now_ms
        match fact:
            case facts.MemberJoined():
                self._join(fact)
            case facts.GenerationStarted():
                self._start(fact)
            case facts.MemberAssigned():
                self._assign(fact)
            case facts.GenerationCompleted():
                self._complete(fact)
            case facts.MemberRemoved() if fact.cause in BY_SILENCE and len(self.removed) < KEPT_MAX:
                client = fact.client_id, fact.client_host.removeprefix("/")
                self.removed.append(Removed(fact.group_id, fact.member_id, client, str(fact.cause)))
            case facts.OffsetsRemoved() if not self.overflow:
                self.forgotten[fact.group_id] = self._count()
            case _:
                pass

    def _join(self, fact: "MemberJoined") -> None:
        members = self.members.get(fact.group_id, {})
        if fact.member_id not in members:
            if self._joined >= KEPT_MAX:
                self.overflow += 1
                return
            self._joined += 1
        client = fact.client_id, fact.client_host.removeprefix("/")
        if self._group_of.setdefault(client, fact.group_id) != fact.group_id:
            self.shared.add(client)
        self.members[fact.group_id][fact.member_id] = client

    def _start(self, fact: "GenerationStarted") -> None:
        if fact.group_id not in self._generations and len(self._generations) >= KEPT_MAX:
            self.overflow += 1
            return
        self._generations[fact.group_id] = fact
        members = self.members.get(fact.group_id, {})
        clients = [members[member_id] for member_id in fact.member_ids if member_id in members]
        self.shared |= {client for client in clients if clients.count(client) > 1}
        self._given.pop(fact.group_id, None)

    def _assign(self, fact: "MemberAssigned") -> None:
        if fact.protocol_type != PROTOCOL_TYPE:
            return
        try:
            assigned = parse_assignment(fact.assignment).assigned_partitions
        except DecodeError:
            return
        topics = {each.topic: tuple(each.partitions) for each in assigned}
        self._given[fact.group_id][fact.member_id] = topics

    def _complete(self, fact: "GenerationCompleted") -> None:
        started = self._generations.get(fact.group_id)
        given = self._given.pop(fact.group_id, None)
        if given and started is not None and started.generation == fact.generation and len(self.assigned) < KEPT_MAX:
            self.assigned.append(Assigned(fact.group_id, fact.generation, started.protocol_name, given))
