"""A producer that consumes, transforms and produces: each input is in the committed output once (I-24).

Its inputs are numbers. Which comes next, the offset of its group says, and each transaction commits the offset behind
the inputs that it has copied.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS
from tests.simulation.cluster.transacting import GROUP, TransactionIsOverError, Transactor, group_of
from tests.simulation.commits import fetch_request, read_offsets
from tests.simulation.transaction_book import Transaction

OFFSET_FETCH_VERSION = 9


class Copier(Transactor):
    def _offset_of(self, transaction: Transaction) -> int:
        return transaction.inputs.stop

    async def _transact(self) -> None:
        rng = self._rng
        begins_at = await self._position()
        transaction = self._transaction = self._book.begin(self.transactional_id, self._pair)
        transaction.inputs = range(begins_at, begins_at + rng.randint(1, 3))
        self._added.clear()
        for _ in transaction.inputs:
            await self._write(transaction, rng.choice(self._book.partitions))
        await self._commit_offset(transaction)
        if rng.random() < 0.1:
            raise TransactionIsOverError
        await self._end(transaction, commit=rng.random() < 0.8)

    async def _position(self) -> int:
        """The committed offset, once none is pending any more. Of its partition by name: asked for all, a coordinator
        leaves out what has nothing but a pending one (§46.6). Of the coordinator that leads: one that was replaced and
        does not know it yet shows what it had (§46.6.1)."""
        group_id = group_of(self.transactional_id)
        request = fetch_request(group_id, [self._book.partitions[0]])
        request.require_stable = True
        leads = False

        async def ask() -> Any:
            nonlocal leads
            wire = await self._coordinators.wire(GROUP, group_id)
            authority = self._world.authority_of(group_id, wire)
            response = await wire.call(request, OFFSET_FETCH_VERSION, within_ms=REQUEST_TIMEOUT_MS)
            leads = authority is not None and authority == self._world.authority_of(group_id, wire)
            return response

        def code_of(response: Any) -> int:
            return _code_of(response) if leads else int(ErrorCode.NOT_COORDINATOR)

        response = await self._until_answered(ask, lambda: self._coordinators.forget(GROUP, group_id), code_of)
        error = ErrorCode(_code_of(response))
        if error is not ErrorCode.NONE:
            self._world.judge.violated("answers", f"offset fetch of {group_id} was answered {error.name}")
        read = read_offsets(response.groups[0])
        ((offset, _),) = read.values()
        return max(offset, 0)


def _code_of(response: Any) -> int:
    """The first error; one that says to wait for a transaction as other coordinators say it."""
    (group,) = response.groups
    codes = [group.error_code, *(each.error_code for topic in group.topics for each in topic.partitions)]
    code = next((each for each in codes if each), 0)
    return int(ErrorCode.CONCURRENT_TRANSACTIONS) if code == ErrorCode.UNSTABLE_OFFSET_COMMIT else code
