"""The keys that access tokens are signed with: fetched at the start, and again from time to time, in a thread.

A login never waits for it. A token of an unknown key fails, and has the keys fetched at once, but for one and the same
name only once a minute, and for all names once a second: the keys may have just been changed, and a client that asks
may be hostile.
"""

import asyncio
import http.client
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ottla.broker.runtime import Runtime, StartError, complete
from ottla.security.access_token import KEY_ID_LENGTH_MAX, KeySetError, VerificationKey, parse_key_set

FETCH_TIMEOUT_S = 10
BYTES_MAX = 1024 * 1024
SAME_NAME_PAUSE_MS = 60_000
# Issuers answer so many requests, and no more: those for a key that is new must not fail because of a hostile client.
PAUSE_MS = 1_000
NAMES_MAX = 16
# A file that changes is looked at as often.
FILE_INTERVAL_MS = 10_000


class KeySetSource(NamedTuple):
    url: str
    """https, http for a loopback address, or file."""
    refresh_ms: int
    retry_ms: int
    retry_ms_max: int


Fetch = Callable[[str], bytes]


class TokenKeys:
    """Of one listener. Call `load` before the first login, and `keep_fresh` once."""

    def __init__(self, runtime: Runtime, source: KeySetSource, fetch: Fetch | None = None) -> None:
        self._runtime = runtime
        self._source = source
        self._fetch = fetch or fetch_url
        self._keys: dict[str, VerificationKey] = {}
        # Names that were not known, and until when none of them has the keys fetched, the latest last.
        self._missed: OrderedDict[str, int] = OrderedDict()
        self._wake: asyncio.Future[None] | None = None
        self._is_wanted = False
        self._fetched_ms = -PAUSE_MS

    def find(self, name: str) -> VerificationKey | None:
        """The key of this name; of one that is not known, new ones are fetched for later."""
        key = self._keys.get(name)
        if key is None and len(name) <= KEY_ID_LENGTH_MAX and self._may_fetch_for(name):
            self._is_wanted = True
            if self._wake is not None:
                complete(self._wake, None)
        return key

    def _may_fetch_for(self, name: str) -> bool:
        now_ms = self._runtime.clock.now_ms()
        if now_ms < self._missed.get(name, now_ms):
            return False
        self._missed[name] = now_ms + SAME_NAME_PAUSE_MS
        self._missed.move_to_end(name)
        if len(self._missed) > NAMES_MAX:
            self._missed.popitem(last=False)
        return True

    async def load(self) -> None:
        """Raises StartError."""
        try:
            self._keys = await self._fetched()
        except (OSError, KeySetError, ValueError) as error:
            raise StartError(f"sasl.oauthbearer.jwks.endpoint.url={self._source.url}: {error}") from None

    def keep_fresh(self) -> None:
        """Until the broker ends."""
        self._runtime.spawn(self._refresh_for_ever(), "keys of access tokens")

    async def _refresh_for_ever(self) -> None:
        is_file = self._source.url.startswith("file:")
        wait_ms = min(self._source.refresh_ms, FILE_INTERVAL_MS) if is_file else self._source.refresh_ms
        while True:
            await self._sleep(wait_ms)
            await self._refresh()

    async def _sleep(self, wait_ms: int) -> None:
        """Or until a key is wanted that is not there, but no sooner than `PAUSE_MS` after the last time."""
        if not self._is_wanted:
            await self._sleep_until_wanted(wait_ms)
        pause_ms = self._fetched_ms + PAUSE_MS - self._runtime.clock.now_ms()
        if pause_ms > 0:
            await self._runtime.sleep(pause_ms)

    async def _sleep_until_wanted(self, wait_ms: int) -> None:
        wake = self._wake = asyncio.get_running_loop().create_future()
        timer = self._runtime.schedule(wait_ms, lambda: complete(wake, None))
        try:
            await wake
        finally:
            timer.cancel()
            self._wake = None

    async def _refresh(self) -> None:
        """The old keys count until new ones are there."""
        wait_ms = self._source.retry_ms
        while True:
            self._is_wanted = False
            try:
                self._keys = await self._fetched()
                self._fetched_ms = self._runtime.clock.now_ms()
                return
            except (OSError, KeySetError, ValueError) as error:
                self._runtime.log.security.warning(
                    "keys of access tokens could not be fetched", url=self._source.url, why=str(error)
                )
            await self._runtime.sleep(wait_ms)
            wait_ms = min(2 * wait_ms, self._source.retry_ms_max)

    async def _fetched(self) -> dict[str, VerificationKey]:
        return await self._runtime.in_thread(lambda: parse_key_set(self._fetch(self._source.url)))


# The address is configured, and no answer changes it: there is no handler of redirects.
_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
)


def fetch_url(url: str) -> bytes:
    """Raises OSError, or KeySetError for what is too large."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    else:
        opener = urllib.request.OpenerDirector()
        for handler in _HANDLERS:
            opener.add_handler(handler())
        try:
            with opener.open(url, timeout=FETCH_TIMEOUT_S) as response:
                content = response.read(BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            raise OSError(f"the answer was {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise OSError(f"cannot be reached: {error.reason}") from None
        except http.client.HTTPException as error:
            # No OSError: it would end the fetching for good.
            raise OSError(f"the answer is no HTTP that can be read ({type(error).__name__})") from None
    if len(content) > BYTES_MAX:
        raise KeySetError(f"it has more than {BYTES_MAX:,} bytes")
    return content
