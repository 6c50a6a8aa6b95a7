"""The metadata store over a link: what is lost is answered so, in order, and watches miss nothing."""

import asyncio
from typing import Any

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.store import Changes, Committed, Expect, Granted, Put, Snapshot, Unavailable
from ottla.testing.surroundings.link_store import LinkStore
from ottla.testing.surroundings.ways import STORE, Ways

NODE = 1


class Talk:
    """A session of a store, and what came back by it."""

    def __init__(self) -> None:
        self.ways = Ways()
        self.store = EmbeddedStore()
        self.session = LinkStore(self.store.session(), self.ways, NODE)
        self.answers: list[Any] = []
        self.came = asyncio.Event()

    def take(self, answer: Any) -> None:
        self.answers.append(answer)
        self.came.set()

    def commit(self, key: str) -> None:
        self.session.commit([Expect(key, 0)], [Put(key, b"v")], self.take)

    def cut(self, source: Any, target: Any) -> None:
        self.ways.altered(source, target).is_cut = True
        self.ways.changed()

    @property
    def keys(self) -> list[str]:
        found: list[Snapshot | Unavailable] = []
        self.store.read("", found.append)
        assert isinstance(found[0], Snapshot)
        return [entry.key for entry in found[0].entries]

    async def next_answer(self) -> Any:
        self.came.clear()
        async with asyncio.timeout(20):
            await self.came.wait()
        return self.answers[-1]


async def test_open_link_changes_nothing() -> None:
    talk = Talk()
    talk.session.watch("", 1, talk.take)
    talk.commit("a")
    talk.session.grant(1000, talk.take)

    assert [type(answer) for answer in talk.answers] == [Committed, Changes, Granted]


async def test_request_that_is_lost_is_answered_unavailable() -> None:
    talk = Talk()
    talk.cut(NODE, STORE)
    talk.commit("a")
    assert talk.answers == []

    assert isinstance(await talk.next_answer(), Unavailable)
    assert talk.keys == []


async def test_answer_that_is_lost_leaves_the_change() -> None:
    talk = Talk()
    talk.cut(STORE, NODE)
    talk.commit("a")

    assert isinstance(await talk.next_answer(), Unavailable)
    assert talk.keys == ["a"]


async def test_what_was_lost_is_answered_before_what_follows() -> None:
    talk = Talk()
    talk.cut(NODE, STORE)
    talk.commit("a")
    talk.ways.heal()
    talk.commit("b")

    assert [type(answer) for answer in talk.answers] == [Unavailable, Committed]


async def test_watch_goes_on_where_it_was() -> None:
    talk = Talk()
    talk.session.watch("", 1, talk.take)
    talk.cut(STORE, NODE)
    for key in ("a", "b"):
        talk.store.commit([], [Put(key, b"v")], lambda _: None)
    assert talk.answers == []

    talk.ways.heal()

    assert [answer.revision for answer in talk.answers] == [1, 2]


async def test_stopped_process_hears_nothing_until_it_goes_on() -> None:
    talk = Talk()
    talk.session.watch("", 1, talk.take)
    talk.ways.stop(NODE)
    talk.commit("a")
    assert talk.answers == []
    assert talk.keys == ["a"]

    talk.ways.go_on(NODE)

    assert [type(answer) for answer in talk.answers] == [Committed, Changes]


async def test_delay_keeps_the_order() -> None:
    talk = Talk()
    loop = asyncio.get_running_loop()
    talk.ways.altered(NODE, STORE).delay_ms = 30
    began = loop.time()
    for key in ("a", "b"):
        talk.commit(key)

    await talk.next_answer()
    while len(talk.answers) < 2:
        await talk.next_answer()

    assert loop.time() - began >= 0.03
    assert [answer.revision for answer in talk.answers] == [1, 2]


async def test_closed_session_gets_nothing_more() -> None:
    talk = Talk()
    watch = talk.session.watch("", 1, talk.take)
    talk.cut(STORE, NODE)
    talk.commit("a")
    watch.cancel()
    talk.session.close()
    talk.session.close()
    talk.commit("b")

    talk.ways.heal()

    assert talk.answers == []
