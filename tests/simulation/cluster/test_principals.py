"""Principals of the simulation: the model of their rights, the judge, and worlds that have them."""

import random
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.image import MetadataImage
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.security.acl import (
    OPERATIONS_OF,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    normal_host,
)
from ottla.security.acl_index import AclIndex
from ottla.security.authentication import parse_principal
from ottla.security.authorizer import Authorizer
from tests.simulation.cluster.principals.asks import GROUP_CODE, Ask, Deed, wrong_code
from tests.simulation.cluster.principals.court import Act, Court, Who
from tests.simulation.cluster.principals.rights import SUPER_USERS, Rights, matches
from tests.simulation.cluster.principals.visitor import CLOSES_WITHIN_MS, Visitor
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.loop import Process

MALLORY, HERE = "User:mallory", "10.0.0.1"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE = AclOperation.READ, AclOperation.WRITE
NAMES = ["v", "va", "vault", "vault-1", "*", "hardcode"]
KINDS = [TOPIC, GROUP]


def read_group(permission=Permission.ALLOW):
    return AclBinding(GROUP, "vgroup", PatternType.LITERAL, MALLORY, "*", READ, permission)


ACLS = st.builds(
    AclBinding,
    st.sampled_from(KINDS),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([MALLORY, "User:*", "User:other"]),
    st.sampled_from(["*", HERE, "::ffff:10.0.0.1", "10.0.0.9"]),
    st.sampled_from([AclOperation.ALL, *OPERATIONS_OF[TOPIC]]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@given(st.frozensets(ACLS, max_size=8), st.booleans(), st.sampled_from([MALLORY, "User:operator", "User:operator-2"]))
def test_the_model_and_the_broker_decide_alike(acls, is_open, principal):
    rights = Rights(acls, is_open=is_open)
    super_users = frozenset(map(parse_principal, SUPER_USERS))
    broker = Authorizer(AclIndex(acls), super_users, allows_without_acl=is_open)
    who = parse_principal(principal), normal_host(HERE)

    for kind in KINDS:
        for operation in OPERATIONS_OF[kind]:
            for name in NAMES:
                expected = broker.decide(*who, operation, kind, name).is_allowed
                assert rights.may(principal, HERE, operation, kind, name) is expected, (operation, kind, name)
    assert rights.may_with_some(principal, HERE, WRITE, TOPIC) is broker.decide_for_some(*who, WRITE, TOPIC).is_allowed


@pytest.mark.parametrize(
    ("one", "fits"),
    [
        (AclFilter(*read_group()), True),
        (AclFilter(principal=MALLORY), True),
        (AclFilter(principal=MALLORY, permission=Permission.DENY), False),
        (AclFilter(name="other"), False),
    ],
)
def test_filters_match_what_they_name(one, fits):
    assert matches(one, read_group()) is fits
    assert one.matches(read_group()) is fits


# The judge.


class Bench:
    """A judge without a cluster: its broker has the images that the test gives it, at the times that it sets."""

    def __init__(self):
        self.violations = []
        self.now_us = 0
        self.process = Process("broker-1 life 1")
        self.court = Court(self)
        self.who = Who(MALLORY, HERE)
        self._revision = 0

    def has(self, *acls):
        """The store has these, and so has the broker from now on."""
        self._revision += 1
        rights = Rights(frozenset(acls), is_open=False)
        self.court.stored._revisions.append(self._revision)
        self.court.stored._rights.append(rights)
        image = MetadataImage("cluster", -1, revision=self._revision)
        image = image.with_acls({str(acl): acl for acl in acls}) if acls else image
        self.court.beliefs.note(self.process, image)

    def answered(self, code, since_us):
        ask = Ask(HeartbeatRequest(group_id="vgroup"), 0, _wrong_heartbeat)
        self.court.answered(self.who, self.process, since_us, ask, HeartbeatResponse(error_code=code))
        return bool(self.violations)

    # What the judge asks of a world.

    @property
    def plan(self):
        return SimpleNamespace(is_open=False)

    @property
    def judge(self):
        trace = SimpleNamespace(now_us=lambda: self.now_us)
        counts = {"requests refused": 0, "requests of principals": 0, "deeds of principals": 0, "ACLs changed": 0}
        return SimpleNamespace(violated=lambda *how: self.violations.append(how), counts=counts, trace=trace)

    @property
    def store_machine(self):
        return SimpleNamespace(store=EmbeddedStore())

    @property
    def truth(self):
        return SimpleNamespace(when_changed=[])


def _wrong_heartbeat(seen, response):
    return wrong_code("heartbeat", response.error_code, GROUP_CODE, is_allowed=seen.group(READ, "vgroup"))


@pytest.fixture
def bench():
    bench = Bench()
    bench.has()
    bench.now_us = 100
    bench.has(read_group())
    bench.now_us = 200
    bench.has(read_group(), read_group(Permission.DENY))
    bench.now_us = 300
    return bench


@pytest.mark.parametrize(
    ("code", "since_us", "is_wrong"),
    [
        pytest.param(0, 250, True, id="allowed-by-what-was-in-force-before"),
        pytest.param(0, 150, False, id="allowed-when-it-was-sent"),
        pytest.param(GROUP_CODE, 250, False, id="denied-now"),
        pytest.param(25, 250, True, id="answered-instead-of-refused"),
    ],
)
def test_an_answer_needs_a_set_that_was_in_force(bench, code, since_us, is_wrong):
    assert bench.answered(code, since_us) is is_wrong


def test_what_was_allowed_throughout_must_not_be_refused(bench):
    bench.now_us = 190
    assert bench.answered(GROUP_CODE, 150)


def test_a_broker_with_other_acls_than_the_store_is_found(bench):
    image = MetadataImage("cluster", -1, revision=3).with_acls({"one": read_group()})
    bench.court.beliefs.note(bench.process, image)
    assert [invariant for invariant, _ in bench.violations] == ["I-25"]


class Start:
    """A world whose one broker serves from a time on, and closes what was denied at another."""

    def __init__(self, bench, serves_from_ms, closes_at_ms):
        self._now_ms = 0
        self._bench, self._serves_from_ms, self._closes_at_ms = bench, serves_from_ms, closes_at_ms
        self.plan = SimpleNamespace(auto_creates=False)
        self.truth = SimpleNamespace(partition=lambda *_: None, image=SimpleNamespace(topic=lambda _: None))
        self.nodes = {1: SimpleNamespace(address=("broker-1", 9092))}
        self.has_been_calm_for_ms = 60_000
        self.wire = SimpleNamespace(is_lost=False, send=lambda *_: None, close=lambda: None)

    @property
    def now_us(self):
        return self._bench.now_us

    def serves(self, _):
        return self._now_ms >= self._serves_from_ms

    def make_rng(self, _):
        return random.Random(1)

    def wall_ms(self):
        return 0

    def process_behind(self, _):
        return self._bench.process

    async def connect_to(self, *_):
        return self.wire

    async def sleep_ms(self, duration_ms):
        self._now_ms += duration_ms
        self.wire.is_lost = self._closes_at_ms is not None and self._now_ms >= self._closes_at_ms


@pytest.mark.parametrize(
    ("serves_from_ms", "closes_at_ms", "is_wrong"),
    [
        pytest.param(0, 1, False, id="closed-at-once"),
        pytest.param(0, None, True, id="never-closed"),
        pytest.param(0, CLOSES_WITHIN_MS + 1, True, id="closed-too-late"),
        pytest.param(3 * CLOSES_WITHIN_MS, 3 * CLOSES_WITHIN_MS + 1, False, id="closed-when-its-broker-had-started"),
        pytest.param(3 * CLOSES_WITHIN_MS, None, True, id="never-closed-by-a-broker-that-has-started"),
    ],
)
async def test_a_denied_produce_with_acks_0_has_to_close(bench, serves_from_ms, closes_at_ms, is_wrong):
    visitor = Visitor(Start(bench, serves_from_ms, closes_at_ms), bench.court, bench.who, count(1))

    await visitor._produce_without_answer()

    assert bool(bench.violations) is is_wrong


@pytest.mark.parametrize(("since_us", "until_us", "is_wrong"), [(150, 250, False), (250, 280, True), (250, None, True)])
def test_a_deed_needs_a_set_that_allowed_it(bench, since_us, until_us, is_wrong):
    deed = Deed(("offset", "vgroup", "vault", 7), lambda seen: seen.group(READ, "vgroup"))
    act = Act(bench.who, bench.process, deed, since_us, until_us)
    bench.court._acts[deed.what] = [act]

    bench.court.check_offset("vgroup", "vault", 7)

    assert bool(bench.violations) is is_wrong


def test_an_offset_that_was_never_sent_is_found(bench):
    bench.court.check_offset("vgroup", "vault", 8)
    assert bench.violations


@pytest.mark.parametrize(("until_us", "is_wrong"), [(120, True), (220, False), (None, False)])
def test_a_request_before_a_creation_explains_no_deletion(bench, until_us, is_wrong):
    deed = Deed(("delete", "valley"), lambda _: True)
    bench.court._acts[deed.what] = [Act(bench.who, bench.process, deed, 110, until_us)]
    without = SimpleNamespace(topic=lambda _: None)
    topic = SimpleNamespace(topic_id=b"id", configs={})
    with_it = SimpleNamespace(topic=lambda _: topic)
    bench.now_us = 210

    bench.court._topics_changed(without, SimpleNamespace(image=with_it, topics={"valley": (0,)}))
    bench.court._topics_changed(with_it, SimpleNamespace(image=without, topics={"valley": (0,)}))

    assert bool(bench.violations) is is_wrong


# Worlds.


def seeds_with_principals():
    return (seed for seed in range(4_000, 5_000) if ClusterWorld(seed).plan.has_principals)


def test_each_host_is_one_principal():
    principals = ClusterWorld(next(seeds_with_principals())).principals

    assert str(principals.principal_of("10.0.0.2")) == "User:operator-2"
    assert str(principals.principal_of("broker-3")) == "User:broker"
    assert str(principals.principal_of("admin")) == "User:operator"
    assert str(principals.principal_of("reader")) == ("User:staff" if principals.has_staff else "User:operator")
