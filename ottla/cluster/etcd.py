"""The metadata store on etcd v3, for brokers in several processes; consensus and durability are etcd's.

Requests go to etcd's JSON gateway (`etcd_gateway`): reads and commits one at a time, in the order of the calls, and
beside them what leases need, for a lease must not wait behind a long queue. A commit that went out and was not answered
is not sent again: it may have been done. Its caller learns so from the watch.

A watch is an answer that does not end. When it breaks it is begun again after the last revision that was seen, at the
next endpoint. An endpoint that goes silent without breaking is found out by others: when their answers have shown a
later revision than the watch has for a while, it is begun again.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import aiohttp

from ottla.cluster.etcd_errors import EtcdError, NoEntry, NotFound, Unanswered, is_about_entry
from ottla.cluster.etcd_gateway import TRY_TIMEOUT_S, EtcdGateway, EtcdLogin, Headers
from ottla.cluster.etcd_wire import (
    Json,
    TransactionTooLarge,
    changes_of,
    entries_of,
    range_request,
    revision_of,
    transaction_request,
    transaction_result,
    watch_request,
)
from ottla.cluster.store import (
    Change,
    CommitResult,
    Compacted,
    Entry,
    Expect,
    Granted,
    KeepAliveResult,
    KeptAlive,
    LeaseLost,
    NotAdmitted,
    Snapshot,
    TooLarge,
    Unavailable,
    WatchEvent,
)

NAMESPACE = "/ottla/"
_ENTRIES_PER_READ = 2000
# A transaction of thousands of changes takes a busy etcd its time.
_CHANGE_S = 0.001
_WATCH_SILENCE_S = 1.0

T = TypeVar("T")


class EtcdStore:
    def __init__(
        self,
        endpoints: Sequence[tuple[str, int]],
        *,
        tls: ssl.SSLContext | None = None,
        login: EtcdLogin | None = None,
        timeout_ms: int = 5000,
        namespace: str = NAMESPACE,
        reachable: Callable[[bool, str], None] | None = None,
    ) -> None:
        """Made within a running loop; nothing is sent before the first call. A call that no endpoint has answered
        within `timeout_ms` gets Unavailable; one that etcd does not let in, NotAdmitted. `tls`: of a client; None:
        without TLS. `reachable` is called when etcd cannot be reached any more, and why, and when it can."""
        self._timeout_s = timeout_ms / 1000
        self._namespace = namespace
        self._loop = asyncio.get_running_loop()
        self.gateway = EtcdGateway(endpoints, tls=tls, login=login, timeout_s=self._timeout_s, reachable=reachable)
        self._closing: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[Coroutine[Any, Any, None]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        self._in_order(self._answer(partial(self._read, prefix, self._deadline()), done))

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        self._in_order(self._answer(partial(self._commit, expected, changes, self._deadline(len(changes))), done))

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> "EtcdWatch":
        watch = EtcdWatch(self, self._namespace, prefix, from_revision, deliver)
        watch.task = self._start(watch.run(), f"etcd watch of {prefix or 'everything'}")
        return watch

    def grant(self, ttl_ms: int, done: Callable[[Granted | Unavailable], None]) -> None:
        """etcd counts in whole seconds and has a shortest time, two seconds by default."""
        self._start(self._answer(partial(self._grant, ttl_ms, self._deadline()), done), "etcd lease grant")

    def keep_alive(self, lease_id: int, done: Callable[[KeepAliveResult], None]) -> None:
        self._start(self._answer(partial(self._keep_alive, lease_id, self._deadline()), done), "etcd lease keep-alive")

    def revoke(self, lease_id: int, done: Callable[[LeaseLost | Unavailable], None]) -> None:
        self._start(self._answer(partial(self._revoke, lease_id, self._deadline()), done), "etcd lease revoke")

    def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        while not self._queue.empty():
            self._queue.get_nowait().close()
        if self._closing is None:
            self._closing = self._loop.create_task(self.gateway.close(), name="etcd connections closing")

    async def wait_closed(self) -> None:
        """After `close`: everything has ended."""
        tasks = [*self._tasks]
        if self._closing is not None:
            tasks.append(self._closing)
        await asyncio.gather(*tasks, return_exceptions=True)

    # Doing things in order.

    def _in_order(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            return
        self._queue.put_nowait(work)
        if self._worker is None:
            self._worker = self._start(self._work(), "etcd requests")

    async def _work(self) -> None:
        while True:
            await (await self._queue.get())

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._closed:
            task.cancel()
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
            self._loop.call_exception_handler(context)

    async def _answer(self, work: Callable[[], Awaitable[T]], done: Callable[[T | Unavailable], None]) -> None:
        result: T | Unavailable
        try:
            result = await work()
        except NoEntry as error:
            result = NotAdmitted(str(error))
        except Unanswered as error:
            result = Unavailable(str(error))
        except (KeyError, TypeError, ValueError) as error:
            result = Unavailable(f"an answer of etcd cannot be understood: {error!r}")
        self.call(done, result)

    # Requests.

    def _deadline(self, changes: int = 0) -> float:
        return self._loop.time() + self._timeout_s + changes * _CHANGE_S

    async def _read(self, prefix: str, deadline: float) -> Snapshot:
        entries: list[Entry] = []
        revision = 0
        after: str | None = None
        while True:
            request = range_request(self._namespace + prefix, _ENTRIES_PER_READ, after, revision)
            answer = await self.gateway.ask("kv/range", request, deadline)
            revision = revision or revision_of(answer)
            page = entries_of(answer, self._namespace)
            entries += page
            if not answer.get("more", False):
                return Snapshot(entries, revision)
            after = self._namespace + page[-1].key

    async def _commit(self, expected: Sequence[Expect], changes: Sequence[Change], deadline: float) -> CommitResult:
        try:
            request = transaction_request(expected, changes, self._namespace)
        except TransactionTooLarge as error:
            return TooLarge(f"etcd does not take {error}")
        try_timeout_s = TRY_TIMEOUT_S + len(changes) * _CHANGE_S
        try:
            answer = await self.gateway.ask("kv/txn", request, deadline, try_timeout_s, repeatable=False)
        except NotFound:
            return LeaseLost()
        return transaction_result(answer, expected)

    async def _grant(self, ttl_ms: int, deadline: float) -> Granted:
        # A grant that was done and not answered ends by itself.
        answer = await self.gateway.ask("lease/grant", {"TTL": str(-(-ttl_ms // 1000))}, deadline)
        return Granted(int(answer["ID"]), int(answer["TTL"]) * 1000)

    async def _keep_alive(self, lease_id: int, deadline: float) -> KeepAliveResult:
        try:
            answer = await self.gateway.ask("lease/keepalive", {"ID": str(lease_id)}, deadline)
        except NotFound:
            return LeaseLost()
        return KeptAlive() if int(answer["result"].get("TTL", 0)) > 0 else LeaseLost()

    async def _revoke(self, lease_id: int, deadline: float) -> LeaseLost:
        with suppress(NotFound):
            await self.gateway.ask("lease/revoke", {"ID": str(lease_id)}, deadline)
        return LeaseLost()

    # What watches use too.

    def call(self, callback: Callable[[T], None], result: T) -> None:
        if self._closed:
            return
        try:
            callback(result)
        except Exception as error:
            # The outermost edge of a callback: those that come after it must come all the same.
            self._loop.call_exception_handler({"message": "an etcd callback failed", "exception": error})


class EtcdWatch:
    def __init__(
        self,
        store: EtcdStore,
        namespace: str,
        prefix: str,
        from_revision: int,
        deliver: Callable[[WatchEvent], None],
    ) -> None:
        self._store = store
        self._gateway = store.gateway
        self._namespace = namespace
        self._prefix = namespace + prefix
        self._next_revision = from_revision
        self._seen_revision = 0
        self._deliver = deliver
        self._active = True
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        self._active = False
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        while self._active:
            url = self._gateway.url
            try:
                await self._watch_once(url)
                reason = "the watch ended"
            except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError, EtcdError) as error:
                reason = self._gateway.reason_of(error)
            if self._active:
                await self._gateway.leave_endpoint(url, reason)

    async def _watch_once(self, url: str) -> None:
        request = watch_request(self._prefix, self._next_revision)
        async with self._gateway.stream(url, "watch", request) as (content, headers):
            async for message in self._messages(content):
                if "error" in message:
                    raise Unanswered(str(message["error"]))
                self._check_entry(message["result"], headers)
                self._gateway.note_reachable()
                if not self._took(message["result"]):
                    return
                # Others are served before the next transaction is delivered.
                await asyncio.sleep(0)

    async def _messages(self, content: aiohttp.StreamReader) -> AsyncIterator[Json]:
        buffered = b""
        while True:
            try:
                chunk = await asyncio.wait_for(content.readany(), _WATCH_SILENCE_S)
            except TimeoutError:
                if self._gateway.revision_seen > self._seen_revision:
                    raise
                continue
            if not chunk:
                return
            *lines, buffered = (buffered + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield json.loads(line)

    def _check_entry(self, result: Json, headers: Headers) -> None:
        """Raises Unanswered where the watch is refused to this user, or to this token."""
        why = str(result.get("cancel_reason", ""))
        if is_about_entry(why):
            self._gateway.token_refused(headers)
            raise Unanswered(f"etcd: {why}")

    def _took(self, result: Json) -> bool:
        """Whether the watch goes on."""
        self._seen_revision = max(self._seen_revision, revision_of(result))
        if result.get("canceled", False):
            compacted = int(result.get("compact_revision", 0))
            if compacted:
                self._active = False
                self._store.call(self._deliver, Compacted(compacted))
            return False
        for changes in changes_of(result, self._namespace):
            if changes.revision >= self._next_revision and self._active:
                self._next_revision = changes.revision + 1
                self._store.call(self._deliver, changes)
        return self._active
