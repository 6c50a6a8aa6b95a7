"""Who uses the cluster in a run: members of groups, producers, readers, each with random numbers of its own."""

import random
from typing import TYPE_CHECKING

from tests.simulation.cluster.committed_reading import CommittedReader
from tests.simulation.cluster.copying import Copier
from tests.simulation.cluster.hostile.client import HostileClient
from tests.simulation.cluster.keyed import KeyedProducer
from tests.simulation.cluster.newcomer import Newcomer
from tests.simulation.cluster.plan import NODE_IDS, rack_of
from tests.simulation.cluster.producing import HopefulProducer, IdempotentProducer
from tests.simulation.cluster.reading import OldReader, RackReader, Reader, SessionReader
from tests.simulation.cluster.searching import Searcher
from tests.simulation.cluster.slow_reading import SlowReader
from tests.simulation.cluster.standalone import GROUP, StandaloneConsumer
from tests.simulation.cluster.topic_ids import ShortLivedReader
from tests.simulation.cluster.transacting import Transactor
from tests.simulation.loop import Process
from tests.simulation.member import Habits, Member
from tests.simulation.scraping import Scraper

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld


def spawn_clients(world: "ClusterWorld") -> None:
    """All that the plan has."""
    for group_number, size in enumerate(world.plan.members_of_group):
        for number in range(size):
            rng = world.make_rng(f"member {group_number}/{number}")
            member = Member(world, rng, Habits.draw(rng, f"group{group_number}", number))  # type: ignore[arg-type]
            world.members.append(member)
            world.spawn_client(member.habits.client_id, member.live())
    for number in range(world.plan.producers):
        name = f"once-{number}"
        producer = IdempotentProducer(world, world.make_rng(name), name)
        world.producers.append(producer)
        world.spawn_client(name, producer.live())
    hopeful = HopefulProducer(world, world.make_rng("hopeful"), "hopeful")
    world.spawn_client("hopeful", hopeful.live())
    _spawn_readers(world)
    if world.plan.shares_store:
        world.spawn(_others_write(world, world.make_rng("others in the store")), "others in the store")
    if world.plan.scrapes:
        world.spawn(_scrape(world, world.make_rng("scrapes")), "scrapes")
    if world.plan.auto_creates:
        world.newcomer = Newcomer(world, world.make_rng("newcomer"), "newcomer")
        world.spawn_client("newcomer", world.newcomer.live())
    if world.plan.searches:
        searcher = Searcher(world, world.make_rng("searcher"), "searcher")
        world.spawn_client("searcher", searcher.live())
    if world.plan.writes_keys:
        world.keyed_producer = KeyedProducer(world, world.make_rng("keyed"), "keyed")
        world.spawn_client("keyed", world.keyed_producer.live())
    if world.plan.transacts:
        _spawn_transactors(world)
    _spawn_strangers(world)
    if world.plan.has_standalone_group:
        world.spawn_client(GROUP, StandaloneConsumer(world, world.make_rng(GROUP), GROUP).live())


def _spawn_strangers(world: "ClusterWorld") -> None:
    """Who asks for what it may not have."""
    if world.principals is not None:
        world.principals.spawn()
    if world.plan.has_hostile_client:
        world.spawn_client("hostile", HostileClient(world, world.make_rng("hostile")).live())


async def _others_write(world: "ClusterWorld", rng: random.Random) -> None:
    while not world.is_over:
        world.store_machine.write_of_others()
        world.judge.counts["transactions of others in the store"] += 1
        await world.sleep_ms(rng.choice([20, 1_000, 5_000]))


async def _scrape(world: "ClusterWorld", rng: random.Random) -> None:
    scrapers: dict[Process, Scraper] = {}
    while not world.is_over:
        await world.sleep_ms(rng.choice([200, 1_000, 5_000]))
        node = rng.choice(list(world.nodes.values()))
        running = node.running
        if running is None or not node.is_serving:
            continue
        # In its process: what a scrape sets going there ends with it.
        if running.process not in scrapers:
            scrapers[running.process] = running.context.run(Scraper, world.judge, running.broker)
        running.context.run(scrapers[running.process].scrape)


def _spawn_readers(world: "ClusterWorld") -> None:
    """Who reads by the high watermark."""
    reader = Reader(world, world.make_rng("reader"), "reader")
    world.spawn_client("reader", reader.live())
    if world.plan.has_old_reader:
        old_reader = OldReader(world, world.make_rng("old reader"), "old-reader")
        world.spawn_client("old-reader", old_reader.live())
    if world.plan.session_slots is not None:
        session_reader = SessionReader(world, world.make_rng("session reader"), "session-reader")
        world.spawn_client("session-reader", session_reader.live())
    if world.plan.uses_topic_ids:
        short_lived_reader = ShortLivedReader(world, world.make_rng("short-lived reader"), "short-lived-reader")
        world.spawn_client("short-lived-reader", short_lived_reader.live())
    for number in range(world.plan.slow_readers):
        name = f"slow-reader-{number}"
        world.spawn_client(name, SlowReader(world, world.make_rng(name), name).live())
    if world.plan.has_racks:
        rng = world.make_rng("rack reader")
        rack_reader = RackReader(world, rng, "rack-reader", rack_id=rack_of(rng.choice(NODE_IDS)))
        world.spawn_client("rack-reader", rack_reader.live())


def _spawn_transactors(world: "ClusterWorld") -> None:
    """The last two are rivals, in every other world."""
    ids = ["pay-0", "pay-1", "pay-1"] if world.make_rng("rivals").random() < 0.5 else ["pay-0", "pay-1"]
    for number, transactional_id in enumerate(ids):
        name = f"transactor-{number}"
        transactor = Transactor(world, world.make_rng(name), name, transactional_id)
        world.transactors.append(transactor)
        world.spawn_client(name, transactor.live())
    for transactional_id in ids:
        world.book.lines[transactional_id].rivals = ids.count(transactional_id)
    if (rng := world.make_rng("copier")).random() < 0.5:
        copier = Copier(world, rng, "copier", "copy-0")
        world.book.lines["copy-0"].copies = True
        world.transactors.append(copier)
        world.spawn_client("copier", copier.live())
    committed_reader = CommittedReader(world, world.make_rng("committed reader"), "committed-reader")
    world.spawn_client("committed-reader", committed_reader.live())
    name = "follower-reader"
    if (rng := world.make_rng(name)).random() < 0.3:
        follower_reader = CommittedReader(world, rng, name, reads_from_followers=True)
        world.spawn_client(name, follower_reader.live())
