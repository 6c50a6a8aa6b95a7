"""The metadata store on etcd v3, for brokers in several processes; consensus and durability are etcd's.

Requests go over HTTP to etcd's JSON gateway, to one endpoint after the other until one answers: reads and commits one
at a time, in the order of the calls, and beside them what leases need, for a lease must not wait behind a long queue. A
commit that went out and was not answered is not sent again: it may have been done. Its caller learns so from the watch.

A watch is an answer that does not end. When it breaks it is begun again after the last revision that was seen, at the
next endpoint. An endpoint that goes silent without breaking is found out by others: when their answers have shown a
later revision than the watch has for a while, it is begun again.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import aiohttp

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
    Snapshot,
    TooLarge,
    Unavailable,
    WatchEvent,
)

NAMESPACE = "/ottla/"
_ENTRIES_PER_READ = 2000
_CONNECT_TIMEOUT_S = 1.0
_TRY_TIMEOUT_S = 2.0
# A transaction of thousands of changes takes a busy etcd its time.
_CHANGE_S = 0.001
_BACKOFF_S = 0.2
_WATCH_SILENCE_S = 1.0
# gRPC's codes. What was not found is a lease that is gone.
_NOT_FOUND, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 5, 8, 14
# With these etcd refuses what it has not proposed, or what every member refuses alike: INVALID_ARGUMENT, NOT_FOUND,
# ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED and
# UNAUTHENTICATED. Others, such as CANCELLED, UNKNOWN, DEADLINE_EXCEEDED and INTERNAL, say nothing of the outcome.
_NOT_DONE = frozenset({3, 5, 6, 7, _RESOURCE_EXHAUSTED, 9, 11, 12, 16})
# UNAVAILABLE is both: these come before a proposal; "server stopped", "request timed out" or a connection of the
# gateway that broke come after one, which may be committed all the same.
_NOT_PROPOSED = ("etcdserver: no leader", "etcdserver: not capable")

T = TypeVar("T")


class EtcdStore:
    def __init__(
        self,
        endpoints: Sequence[tuple[str, int]],
        *,
        timeout_ms: int = 5000,
        namespace: str = NAMESPACE,
        reachable: Callable[[bool, str], None] | None = None,
    ) -> None:
        """Made within a running loop; nothing is sent before the first call. A call that no endpoint has answered
        within `timeout_ms` gets Unavailable. `reachable` is called when etcd cannot be reached any more, and
        why, and when it can."""
        assert endpoints, "at least one endpoint is needed"
        self._addresses = ", ".join(f"{host}:{port}" for host, port in endpoints)
        self._urls = [f"http://{f'[{host}]' if ':' in host else host}:{port}/v3/" for host, port in endpoints]
        self._at = 0
        self._timeout_s = timeout_ms / 1000
        self._namespace = namespace
        self._reachable = reachable
        self._was_reachable = True
        self._loop = asyncio.get_running_loop()
        self._http: aiohttp.ClientSession | None = None
        self._closing: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[Coroutine[Any, Any, None]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        # The latest revision in any answer.
        self.revision_seen = 0

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
        if self._http is not None:
            self._closing = self._loop.create_task(self._http.close(), name="etcd connections closing")
            self._http = None

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
        except _NoAnswer as error:
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
            answer = await self._ask("kv/range", request, deadline)
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
        try_timeout_s = _TRY_TIMEOUT_S + len(changes) * _CHANGE_S
        try:
            answer = await self._ask("kv/txn", request, deadline, try_timeout_s, repeatable=False)
        except _NotFound:
            return LeaseLost()
        return transaction_result(answer, expected)

    async def _grant(self, ttl_ms: int, deadline: float) -> Granted:
        # A grant that was done and not answered ends by itself.
        answer = await self._ask("lease/grant", {"TTL": str(-(-ttl_ms // 1000))}, deadline)
        return Granted(int(answer["ID"]), int(answer["TTL"]) * 1000)

    async def _keep_alive(self, lease_id: int, deadline: float) -> KeepAliveResult:
        try:
            answer = await self._ask("lease/keepalive", {"ID": str(lease_id)}, deadline)
        except _NotFound:
            return LeaseLost()
        return KeptAlive() if int(answer["result"].get("TTL", 0)) > 0 else LeaseLost()

    async def _revoke(self, lease_id: int, deadline: float) -> LeaseLost:
        with suppress(_NotFound):
            await self._ask("lease/revoke", {"ID": str(lease_id)}, deadline)
        return LeaseLost()

    async def _ask(
        self,
        path: str,
        request: Json,
        deadline: float,
        try_timeout_s: float = _TRY_TIMEOUT_S,
        *,
        repeatable: bool = True,
    ) -> Json:
        """Ask the endpoints in turn until one answers. What is not `repeatable` is sent once at most."""
        reason = "it was not asked in time"
        while True:
            left = deadline - self._loop.time()
            if left <= 0:
                raise _NoAnswer(f"etcd at {self._addresses} did not answer within {self._timeout_s:g} s: {reason}")
            url = self.url
            try:
                answer = await self._ask_one(url + path, request, min(left, try_timeout_s))
            except _Refused as error:
                if not error.again:
                    raise _NoAnswer(str(error)) from error
                reason, was_sent = str(error), False
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                reason, was_sent = _reason(error), False
            except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError, _Doubtful) as error:
                reason, was_sent = _reason(error), True
            else:
                self.note_reachable()
                self.revision_seen = max(self.revision_seen, revision_of(answer.get("result", answer)))
                return answer
            await self.leave_endpoint(url, reason)
            if was_sent and not repeatable:
                raise _NoAnswer(
                    f"etcd at {self._addresses} did not answer a transaction, which may have been done: {reason}"
                )

    async def _ask_one(self, url: str, request: Json, timeout_s: float) -> Json:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S)
        async with self.http().post(url, data=json.dumps(request), timeout=timeout) as response:
            text = await response.read()
        if not text.startswith(b"{"):
            raise _Doubtful(f"etcd answered {text[:100]!r}")
        answer: Json = json.loads(text)
        if answer.get("error") is not None:
            raise _failure(answer)
        return answer

    # What watches use too.

    def call(self, callback: Callable[[T], None], result: T) -> None:
        if self._closed:
            return
        try:
            callback(result)
        except Exception as error:
            # The outermost edge of a callback: those that come after it must come all the same.
            self._loop.call_exception_handler({"message": "an etcd callback failed", "exception": error})

    def http(self) -> aiohttp.ClientSession:
        if self._http is None:
            if self._closed:
                raise _NoAnswer("the store is closed")
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_socket)
            self._http = aiohttp.ClientSession(connector=connector)
        return self._http

    @property
    def url(self) -> str:
        return self._urls[self._at]

    def note_reachable(self) -> None:
        if not self._was_reachable:
            self._was_reachable = True
            self._report_reachable(True, "")

    async def leave_endpoint(self, url: str, reason: str) -> None:
        """Turn from an endpoint that has failed, if no other call has yet; after each round wait a little."""
        if url == self.url:
            self._at = (self._at + 1) % len(self._urls)
        if self._at == 0:
            if self._was_reachable:
                self._was_reachable = False
                self._report_reachable(False, reason)
            await asyncio.sleep(_BACKOFF_S)

    def _report_reachable(self, reachable: bool, reason: str) -> None:
        if self._reachable is not None:
            self._reachable(reachable, reason)


def _reason(error: Exception) -> str:
    """In the system's words where the system refused, without those of the libraries above it."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host name is not known"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


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
            url = self._store.url
            try:
                await self._watch_once(url)
                reason = "the watch ended"
            except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError, _NoAnswer) as error:
                reason = str(error) or type(error).__name__
            if self._active:
                await self._store.leave_endpoint(url, reason)

    async def _watch_once(self, url: str) -> None:
        request = json.dumps(watch_request(self._prefix, self._next_revision))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S)
        async with self._store.http().post(url + "watch", data=request, timeout=timeout) as response:
            async for message in self._messages(response):
                if "error" in message:
                    raise _NoAnswer(str(message["error"]))
                self._store.note_reachable()
                if not self._took(message["result"]):
                    return
                # Others are served before the next transaction is delivered.
                await asyncio.sleep(0)

    async def _messages(self, response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
        buffered = b""
        while True:
            try:
                chunk = await asyncio.wait_for(response.content.readany(), _WATCH_SILENCE_S)
            except TimeoutError:
                if self._store.revision_seen > self._seen_revision:
                    raise
                continue
            if not chunk:
                return
            *lines, buffered = (buffered + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield json.loads(line)

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


class _NoAnswer(Exception):
    """No endpoint has answered in time, or etcd would not do it."""


class _NotFound(Exception):
    """etcd has no such lease."""


class _Doubtful(Exception):
    """etcd has answered with an error, and may have done it, or may do it yet."""


class _Refused(Exception):
    """etcd has answered with an error, and has not done it. `again`: another endpoint, or later, may do better."""

    def __init__(self, message: str, again: bool) -> None:
        super().__init__(message)
        self.again = again


def _failure(answer: Json) -> Exception:
    message, code = str(answer["error"]), answer.get("code")
    if code == _NOT_FOUND and "lease" in message:
        return _NotFound(message)
    # The gateway's own errors have etcd's codes, but not its name: an answer too large for it was done.
    was_not_done = code in _NOT_DONE and message.startswith("etcdserver:")
    if was_not_done or (code == _UNAVAILABLE and message.startswith(_NOT_PROPOSED)):
        return _Refused(f"etcd: {message}", again=code in (_RESOURCE_EXHAUSTED, _UNAVAILABLE))
    return _Doubtful(f"etcd: {message}")


def _socket(address: Any) -> socket.socket:
    """An endpoint whose machine has vanished is noticed within seconds, on connections that only wait too."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
