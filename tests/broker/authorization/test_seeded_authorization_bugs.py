"""Bugs of guards and their decisions that the tests of a broker must find, seeded one at a time (ST-11 and ST-14 to
ST-35 in docs/seeded-bugs.md)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.authorization import access, group_guards, topic_guards
from ottla.broker.authorization.access import Access
from ottla.broker.authorization.decision_log import DecisionLog
from ottla.broker.handlers import describe_cluster, describe_groups, metadata
from ottla.broker.server.apis import APIS, FETCH, METADATA, PRODUCE
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.security.acl import OPERATIONS_OF, AclOperation, ResourceType
from ottla.security.authorizer import Decision
from tests.broker.authorization import test_access, test_decisions, test_matrix
from tests.broker.authorization.samples import ORDERS, Sample
from tests.broker.authorization.world import TOPIC, Secured, with_topics
from tests.broker.wire import RecordingLog
from tests.security.test_seeded_authorizer_bugs import default_is_for_whom_no_acl_is_about
from tests.seeding import has_to_fail, rewrite
from tests.simulation.cluster.seeded_acl_bugs import authorizes_sessions_once, shares_answers_of_metadata

Patch = pytest.MonkeyPatch
Test = Callable[[Path, RecordingLog, Patch], Awaitable[None]]
COMMIT = 8


def missing_topics_are_not_authorized(patch: Patch) -> None:
    allows = Access.allows

    def allowed(self: Access, operation: AclOperation, kind: ResourceType, name: str, **options: bool) -> bool:
        is_missing = kind is TOPIC and operation is not AclOperation.CREATE and self.image.topic(name) is None
        return is_missing or allows(self, operation, kind, name, **options)

    patch.setattr(Access, "allows", allowed)


def topics_are_authorized_before_their_group(patch: Patch) -> None:
    guard = group_guards.GUARDS[COMMIT]

    def topics_first(given: Access, context: Any, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
        denied = given.take_denied(AclOperation.READ, TOPIC, request.topics, group_guards._name)
        refused = [group_guards._refused_commit(topic, group_guards.TOPIC_CODE) for topic in denied]
        given.amend(lambda response: response.topics.extend(refused))
        response: OffsetCommitResponse | None = guard(given, context, request)
        if response is not None:
            response.topics += refused
        return response

    patch.setitem(group_guards.GUARDS, COMMIT, topics_first)


def offsets_of_denied_topics_are_refused(patch: Patch) -> None:
    """In the answer about all topics, which then names them."""

    def refuse(given: Access, answer: Any) -> None:
        for topic in answer.topics:
            if not given.allows_topic(AclOperation.DESCRIBE, topic.name, is_logged=False):
                for partition in topic.partitions:
                    partition.error_code = group_guards.TOPIC_CODE

    patch.setattr(group_guards, "_drop_denied_topics", refuse)


def request_says_whether_it_is_transactional(patch: Patch) -> None:
    rewrite(patch, topic_guards.guard_produce, ("if is_transactional:", "if request.transactional_id is not None:"))


def request_may_say_that_it_is_transactional(patch: Patch) -> None:
    field = "if is_transactional or request.transactional_id is not None:"
    rewrite(patch, topic_guards.guard_produce, ("if is_transactional:", field))


def inter_broker_listener_makes_a_follower(patch: Patch) -> None:
    right = "access.allows_cluster(AclOperation.CLUSTER_ACTION)"
    rewrite(patch, topic_guards.guard_fetch, (right, f"context.connection.is_inter_broker or {right}"))


def follower_of_later_versions_is_not_seen(patch: Patch) -> None:
    both = "request.replica_id < 0 and (state is None or state.replica_id < 0)"
    rewrite(patch, topic_guards.guard_fetch, (both, "request.replica_id < 0"))


def none_is_not_asked(module: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(module, "NOT_ASKED", 0)


def operations_are_given_unasked(patch: Patch) -> None:
    for of in ("topic", "cluster"):
        rewrite(patch, topic_guards.guard_metadata, (f"if request.include_{of}_authorized_operations:", "if True:"))


def cluster_has_operations_of_topics(patch: Patch) -> None:
    kind = ResourceType.CLUSTER
    patch.setitem(OPERATIONS_OF, kind, tuple({*OPERATIONS_OF[kind], *OPERATIONS_OF[TOPIC]}))


def failed_decision_is_an_allowance(patch: Patch) -> None:
    patch.setattr(access, "_FAILED", Decision(True, "error"))


def failed_decision_is_an_error(patch: Patch) -> None:
    rewrite(patch, Access.allows, ("decision = _FAILED", "raise"))


def failed_decision_is_not_logged(patch: Patch) -> None:
    patch.setattr(DecisionLog, "failed", lambda *_, **__: None)


def of_world(test: Callable[[Secured], Awaitable[None]]) -> Test:
    async def run(directory: Path, log: RecordingLog, patch: Patch) -> None:
        async with with_topics(directory, log=log) as made:
            await test(made)

    return run


async def of_failed_decisions(directory: Path, log: RecordingLog, patch: Patch) -> None:
    async with with_topics(directory, log=log) as made:
        await test_decisions.test_a_decision_that_fails_is_a_refusal(made, log, patch)


async def of_failed_decisions_about_a_type(directory: Path, log: RecordingLog, patch: Patch) -> None:
    async with with_topics(directory, log=log) as made:
        await test_decisions.test_a_failed_decision_about_a_type_is_a_refusal(made, log, patch)


async def of_a_failed_decision_among_many(directory: Path, log: RecordingLog, patch: Patch) -> None:
    async with with_topics(directory, log=log) as made:
        await test_decisions.test_a_failed_decision_among_many_is_a_refusal(made, patch)


async def of_default(directory: Path, log: RecordingLog, patch: Patch) -> None:
    await test_access.test_what_no_acl_is_about_is_open_if_it_is_said_so(directory)


async def of_all_offsets(directory: Path, log: RecordingLog, patch: Patch) -> None:
    (sample,) = (each for each in test_matrix.SAMPLES if str(each) == "OffsetFetch-all")
    async with test_matrix.matrix(directory, log=log) as made:
        await test_matrix.test_who_lacks_a_need_gets_its_error_alone(made, sample)


TRANSACTIONAL = of_world(test_access.test_batches_say_whether_a_request_is_transactional)
FOLLOWER = of_world(test_access.test_a_follower_that_is_denied_moves_nothing)
OPERATIONS = of_world(test_access.test_authorized_operations_are_those_of_the_sender)
SEEDED: dict[str, tuple[Callable[[Patch], None], Test]] = {
    "ST-11": (default_is_for_whom_no_acl_is_about, of_default),
    "ST-14": (authorizes_sessions_once, of_world(test_access.test_a_fetch_session_is_authorized_on_each_fetch)),
    "ST-15": (
        shares_answers_of_metadata,
        of_world(test_access.test_metadata_of_one_principal_is_not_sent_to_another),
    ),
    "ST-16": (
        missing_topics_are_not_authorized,
        of_world(test_access.test_a_topic_that_is_hidden_looks_like_one_that_is_missing),
    ),
    "ST-17 order": (
        topics_are_authorized_before_their_group,
        of_world(test_access.test_the_group_is_looked_at_before_its_topics),
    ),
    "ST-17 all": (offsets_of_denied_topics_are_refused, of_all_offsets),
    "ST-18 said": (request_says_whether_it_is_transactional, TRANSACTIONAL),
    "ST-18 may say": (request_may_say_that_it_is_transactional, TRANSACTIONAL),
    "ST-19 listener": (inter_broker_listener_makes_a_follower, FOLLOWER),
    "ST-19 later": (follower_of_later_versions_is_not_seen, FOLLOWER),
    "ST-20 Metadata": (none_is_not_asked(metadata), OPERATIONS),
    "ST-20 DescribeGroups": (none_is_not_asked(describe_groups), OPERATIONS),
    "ST-20 DescribeCluster": (none_is_not_asked(describe_cluster), OPERATIONS),
    "ST-20 unasked": (operations_are_given_unasked, OPERATIONS),
    "ST-20 cluster": (cluster_has_operations_of_topics, OPERATIONS),
    "ST-35 allowed": (failed_decision_is_an_allowance, of_failed_decisions),
    "ST-35 allowed among many": (failed_decision_is_an_allowance, of_a_failed_decision_among_many),
    "ST-35 allowed about a type": (failed_decision_is_an_allowance, of_failed_decisions_about_a_type),
    "ST-35 error": (failed_decision_is_an_error, of_failed_decisions),
    "ST-35 quiet": (failed_decision_is_not_logged, of_failed_decisions),
}


TESTS = {test: bug for bug, (_, test) in SEEDED.items()}
"""Each once, by the last bug that it finds."""
# Where a decision is made to fail, these are in the log; other seeded bugs decide wrongly, and nothing fails.
ERRORS_OF_FAILED_DECISIONS = {"an authorization failed unexpectedly", "a handler failed"}


@pytest.mark.parametrize("test", TESTS, ids=TESTS.values())
async def test_without_a_seeded_bug_all_is_well(tmp_path: Path, monkeypatch: Patch, test: Test) -> None:
    await test(tmp_path, RecordingLog(), monkeypatch)


@pytest.mark.parametrize("bug", SEEDED)
async def test_a_seeded_bug_is_found(tmp_path: Path, monkeypatch: Patch, bug: str) -> None:
    seed_bug, test = SEEDED[bug]
    log = RecordingLog()
    seed_bug(monkeypatch)
    with has_to_fail():
        await test(tmp_path, log, monkeypatch)
    assert errors_in(log) <= (ERRORS_OF_FAILED_DECISIONS if bug.startswith("ST-35") else set())


def errors_in(log: RecordingLog) -> set[str]:
    return {event for event, fields in log.events if "exc_info" in fields}


def names_a_topic(sample: Sample) -> bool:
    """By its name, and needs a right to it."""
    named = test_matrix.parts_of(sample.make(sample.served_versions()[0], bytes(16)), str)
    return ORDERS in named and any(APIS[sample.key].needs[need].resource == "TOPIC" for need in sample.refusals)


async def test_each_api_that_shows_what_topics_are_there_is_found(tmp_path: Path, monkeypatch: Patch) -> None:
    """ST-16"""
    samples = [sample for sample in test_matrix.SAMPLES if names_a_topic(sample)]
    assert {PRODUCE, FETCH, METADATA, COMMIT} <= {sample.key for sample in samples}
    log = RecordingLog()
    async with test_matrix.matrix(tmp_path, log=log) as made:
        for sample in samples:
            await test_matrix.test_what_is_hidden_looks_like_what_is_not_there(made, sample)
        missing_topics_are_not_authorized(monkeypatch)
        for sample in samples:
            with has_to_fail():
                await test_matrix.test_what_is_hidden_looks_like_what_is_not_there(made, sample)
    assert not errors_in(log)
