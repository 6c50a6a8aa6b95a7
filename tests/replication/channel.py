"""What travels between brokers and controller: each message may be delivered, late too, or be lost."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.replication.fetcher import Fetcher
from ottla.replication.fetcher_requests import FetcherRequest
from ottla.replication.isr import IsrChange, IsrOutcome
from tests.replication.controller import State

if TYPE_CHECKING:
    from tests.replication.broker import Broker
    from tests.replication.cluster import Cluster


@dataclass(eq=False)
class Request:
    sender: "Broker"
    fetcher: Fetcher
    pending: FetcherRequest

    def deliver(self, cluster: "Cluster") -> None:
        leader = cluster.brokers.get(self.fetcher.key.leader_id)
        if leader is None:
            self.lose(cluster)
        else:
            cluster.network.append(Response(self, leader.serve(self.pending.request)))

    def lose(self, cluster: "Cluster") -> None:
        if self.sender.asking.pop(id(self.fetcher), None):
            self.fetcher.request_failed(self.pending, cluster.now_ms)


@dataclass(eq=False)
class Response:
    request: Request
    content: Any

    def deliver(self, cluster: "Cluster") -> None:
        sender, fetcher = self.request.sender, self.request.fetcher
        if cluster.brokers.get(sender.id) is sender and sender.asking.pop(id(fetcher), None):
            effects = fetcher.handle_response(self.request.pending, self.content, now_ms=cluster.now_ms)
            sender.perform(effects, fetcher.performed)

    def lose(self, cluster: "Cluster") -> None:
        self.request.lose(cluster)


@dataclass(eq=False)
class ChangeMessage:
    sender: "Broker"
    change: IsrChange
    answer: tuple[ErrorCode, State | None] | None = None

    def deliver(self, cluster: "Cluster") -> None:
        if self.answer is None:
            self.answer = cluster.controller.alter_isr(self.sender.id, self.change)
            cluster.network.append(self)
            return
        self._report(cluster, *self.answer)

    def lose(self, cluster: "Cluster") -> None:
        self._report(cluster, ErrorCode.REQUEST_TIMED_OUT, None)

    def _report(self, cluster: "Cluster", error: ErrorCode, state: State | None) -> None:
        if cluster.brokers.get(self.sender.id) is not self.sender:
            return
        outcome = self.sender.partition.isr_change_answered(
            self.change,
            error,
            partition_epoch=-1 if state is None else state.partition_epoch,
            isr=() if state is None else state.isr,
            elr=() if state is None else sorted(state.elr),
            now_ms=cluster.now_ms,
        )
        if outcome is IsrOutcome.RESEND:
            cluster.network.append(ChangeMessage(self.sender, self.change))


Message = Request | Response | ChangeMessage
