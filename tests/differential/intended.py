"""Differences from Apache Kafka 4.1 that are meant, each by a name and with the reason.

Those that users can notice are described in docs/compatibility.md too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.config.alter import ConfigResourceType
from ottla.broker.handlers.find_coordinator import SHARE
from ottla.cluster.image import TRANSACTION_VERSION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceResponse
from tests.differential.comparing import Difference, Missing, without_names
from tests.differential.connection import Answer, Closed, Outcome, Silence
from tests.differential.drawing import names_something_twice
from tests.differential.exchange import Exchange, error_codes, why_unreadable
from tests.differential.intended_configs import (
    describes_configs,
    is_a_config_of_ours,
    is_a_synonym,
    is_an_unknown_broker_config,
    is_fixed_here,
    is_of_logins,
    is_of_tls,
    is_the_brokers_own,
    is_the_same_number,
    removes_min_isr_of_a_broker,
)


class Intended(NamedTuple):
    name: str
    reason: str
    covers: Callable[[Exchange, Difference], bool]


def _of(*apis: str) -> Callable[[Exchange], bool]:
    return lambda exchange: exchange.asked.api.name in apis


_is_produce, _is_metadata, _is_fetch = _of("Produce"), _of("Metadata"), _of("Fetch")
_may_be_wrong_twice = _of("AlterConfigs", "IncrementalAlterConfigs", "CreateTopics", "CreatePartitions")


# Where a batch says its format, and the newest.
MAGIC_AT, MAGIC_MAX = 16, 2
# The maximum of WriteTxnMarkers and of ListTransactions.
OTHER_VERSIONS = ("api_keys[27].max_version", "api_keys[66].max_version")


def _lists_fewer_versions(exchange: Exchange, difference: Difference) -> bool:
    path = difference.path
    if exchange.asked.api.name != "ApiVersions" or path == "error_code":
        return False
    is_refusal = isinstance(exchange.theirs, Answer) and exchange.theirs.message.error_code
    if is_refusal or path in OTHER_VERSIONS or path == "finalized_features_epoch":
        return True
    return isinstance(difference.ours, Missing) and TRANSACTION_VERSION not in path


def _is_about_one_thing_twice(exchange: Exchange, difference: Difference) -> bool:
    ids = [each.topic_id for each in getattr(exchange.asked.request, "topics", None) or () if hasattr(each, "topic_id")]
    named = [topic_id for topic_id in ids if any(topic_id)]
    is_twice = names_something_twice(exchange.asked.request) or len(set(named)) < len(named)
    return not _is_produce(exchange) and (is_twice or _is_unanswered_of_unknown_types(exchange))


def _is_unanswered_of_unknown_types(exchange: Exchange) -> bool:
    """To Kafka all unknown types of resources are one type."""
    if exchange.asked.api.name != "AlterConfigs" or not isinstance(exchange.theirs, Silence):
        return False
    resources = exchange.asked.request.resources
    names = [each.resource_name for each in resources if each.resource_type not in set(ConfigResourceType)]
    return len(set(names)) < len(names)


def _is_of_a_coordinators_log(exchange: Exchange, difference: Difference) -> bool:
    is_refused = difference.path.endswith("error_code") and 0 in (difference.ours, difference.theirs)
    is_coordinators = "[__consumer_offsets]" in difference.path or "[__transaction_state]" in difference.path
    return is_coordinators and not is_refused


def _is_without_answer(exchange: Exchange, difference: Difference) -> bool:
    data = [each for topic in getattr(exchange.asked.request, "topic_data", ()) for each in topic.partition_data]
    return _is_produce(exchange) and isinstance(exchange.theirs, Silence) and any(each.records is None for each in data)


# Which errors may stand for each other, where a topic has several.
ONE_OF_SEVERAL_ERRORS: dict[str, frozenset[int]] = {
    "CreateTopics": frozenset({36, 37, 38, 39, 40, 42}),
    "CreatePartitions": frozenset({37, 38, 39, 42}),
}
INVALID_REQUIRED_ACKS = 21
CORRUPT_MESSAGE, INVALID_CONFIG, INVALID_REQUEST, INVALID_RECORD = 2, 40, 42, 87


def _is_another_refusal(exchange: Exchange, difference: Difference) -> bool:
    if not difference.path.endswith("error_code"):
        return False
    errors = {difference.ours, difference.theirs}
    if _is_produce(exchange) and INVALID_REQUIRED_ACKS in errors:
        return exchange.asked.request.acks not in (-1, 0, 1) and 0 not in errors
    if exchange.asked.api.name == "AlterConfigs":
        # Of all brokers: a value is wrong, and `min.insync.replicas` is left out, which may not be removed.
        return difference.path == "responses[4/].error_code" and errors == {INVALID_CONFIG, INVALID_REQUEST}
    if exchange.asked.api.name == "IncrementalAlterConfigs":
        # An operation that does not exist, which Kafka looks at in another order.
        return not _operations(exchange.asked.request) <= _ALL_OPERATIONS and errors == {
            INVALID_CONFIG,
            INVALID_REQUEST,
        }
    return errors <= ONE_OF_SEVERAL_ERRORS.get(exchange.asked.api.name, frozenset())


def _is_one_of_several(exchange: Exchange, difference: Difference) -> bool:
    if not describes_configs(exchange) or not isinstance(exchange.theirs, Answer):
        return False
    return {result.error_code for result in exchange.theirs.message.results} == {42}


def _is_beside_a_bad_batch(exchange: Exchange, difference: Difference) -> bool:
    if not _is_produce(exchange) or not isinstance(exchange.theirs, Answer):
        return False
    if not isinstance(exchange.theirs.message, ProduceResponse):
        # The damage has made another request of it.
        return False
    partitions = [each for topic in exchange.theirs.message.responses for each in topic.partition_responses]
    is_spoilt = len(partitions) > 1 or has_unknown_magic(exchange.asked.request)
    return is_spoilt and {each.error_code for each in partitions} == {2}


def has_unknown_magic(request: Any) -> bool:
    """Kafka answers it as a whole, and writes nothing: it reads all batches before it looks at their partitions."""
    records = [each.records for topic in request.topic_data for each in topic.partition_data]
    return any(each is not None and len(each) > MAGIC_AT and each[MAGIC_AT] > MAGIC_MAX for each in records)


def _is_after_a_batch(exchange: Exchange, difference: Difference) -> bool:
    """Bytes that follow the one batch of a partition, and are no whole batch."""
    if not _is_produce(exchange):
        return False
    # Topics that are named by their ids have no name in either.
    cut = {
        f"responses[{topic.name or topic.topic_id!r}].partition_responses[{each.index}]": (topic.name, each.index)
        for topic in exchange.asked.request.topic_data
        for each in topic.partition_data
        if each.records and 0 < len(each.records) - _first_batch_size(each.records) < _first_batch_size(each.records)
    }
    if not isinstance(exchange.ours, Answer):
        # With acks=0, a closed connection is all that says so.
        is_closed = isinstance(exchange.ours, Closed) and isinstance(exchange.theirs, Silence)
        return bool(cut) and exchange.asked.request.acks == 0 and exchange.asked.damage_seed is None and is_closed
    refused = {
        (topic.name, each.index)
        for topic in exchange.ours.message.responses
        for each in topic.partition_responses
        if each.error_code == INVALID_RECORD
    }
    return cut.get(difference.path.rpartition(".")[0]) in refused


def _first_batch_size(records: bytes) -> int:
    return int.from_bytes(records[8:12], "big", signed=True) + 12


def _is_unknown_to_brokers(exchange: Exchange, difference: Difference) -> bool:
    is_ours = difference.path.startswith("responses[4/") and difference.theirs == 0
    return _may_be_wrong_twice(exchange) and is_ours


def _is_cut_within_a_batch(exchange: Exchange, difference: Difference) -> bool:
    ours, theirs = difference.ours, difference.theirs
    return difference.path.endswith(".records") and isinstance(theirs, bytes) and theirs.startswith(ours)


def _is_a_refusal_with_brokers(exchange: Exchange, difference: Difference) -> bool:
    if not _is_metadata(exchange) or not isinstance(exchange.theirs, Answer) or exchange.theirs.message.brokers:
        return False
    return difference.path.startswith(("brokers", "controller_id", "cluster_authorized_operations"))


def _is_auto_created(exchange: Exchange, difference: Difference) -> bool:
    request, theirs = exchange.asked.request, exchange.theirs
    if not _is_metadata(exchange) or not isinstance(theirs, Answer) or not request.allow_auto_topic_creation:
        return False
    missing = {topic.name for topic in theirs.message.topics if topic.error_code in (3, 5)}
    return any(f"topics[{name}]" in difference.path for name in missing)


def _is_of_share_groups(exchange: Exchange, difference: Difference) -> bool:
    return getattr(exchange.asked.request, "key_type", 0) == SHARE or "[__share_group_state]" in difference.path


# What a follower would be sent of a partition, and a consumer is not.
_OF_A_FOLLOWERS_FETCH = {
    "error_code",
    "session_id",
    "responses",
    "responses.partitions.error_code",
    "responses.partitions.high_watermark",
    "responses.partitions.last_stable_offset",
    "responses.partitions.log_start_offset",
    "responses.partitions.aborted_transactions",
    "responses.partitions.records",
    "responses.partitions.current_leader",
    "responses.partitions.diverging_epoch",
}


def _claims_to_be_a_broker(exchange: Exchange, difference: Difference) -> bool:
    request = exchange.asked.request
    state = getattr(request, "replica_state", None)
    if not _is_fetch(exchange) or (request.replica_id == -1 and (state is None or state.replica_id == -1)):
        return False
    return without_names(difference.path) in _OF_A_FOLLOWERS_FETCH and _refuses_all(exchange.ours)


def _refuses_all(outcome: Outcome) -> bool:
    """Whether a fetch got an error for each partition, and no record."""
    if not isinstance(outcome, Answer):
        return False
    partitions = [each for topic in outcome.message.responses for each in topic.partitions]
    return all(each.error_code and not each.records for each in partitions)


def _is_damaged(exchange: Exchange, difference: Difference) -> bool:
    """Kafka puts U+FFFD in its place, and lists the group that joined by such a name in all later episodes."""
    asked = exchange.asked
    if asked.api.name == "ListGroups" and isinstance(difference.ours, Missing) and isinstance(difference.theirs, dict):
        return "\ufffd" in difference.theirs["group_id"]
    if asked.damage_seed is None or not isinstance(exchange.ours, Closed):
        return False
    return why_unreadable(asked) == "text that is not UTF-8"


def _has_no_acl_number(exchange: Exchange, difference: Difference) -> bool:
    is_of_acls = exchange.asked.api.name in ("CreateAcls", "DescribeAcls", "DeleteAcls")
    return is_of_acls and isinstance(exchange.ours, Answer) and isinstance(exchange.theirs, Closed)


# Kafka refuses their names by failing.
NOT_TOPICS = ("", ".", "..", "a b", "x" * 250)
# SET and DELETE are the only operations on what is no list.
_ON_ANYTHING = {0, 1}
_ALL_OPERATIONS = {0, 1, 2, 3}


def _operations(request: Any) -> set[int]:
    return {config.config_operation for each in request.resources for config in each.configs}


def _is_of_an_empty_simple_group(exchange: Exchange, difference: Difference) -> bool:
    """A commit of which nothing could be stored makes a simple group. Kafka shows it when something else has been
    written to the same partition of `__consumer_offsets`."""
    if exchange.asked.api.name == "DescribeGroups" and difference.path.endswith("group_state"):
        return {difference.ours, difference.theirs} == {"Empty", "Dead"}
    if exchange.asked.api.name != "ListGroups" or without_names(difference.path) != "groups":
        return False
    group = difference.theirs if isinstance(difference.ours, Missing) else difference.ours
    return isinstance(group, dict) and group["protocol_type"] == "" and group.get("group_state", "Empty") == "Empty"


def _has_an_unreadable_subscription(exchange: Exchange, difference: Difference) -> bool:
    """Kafka reads what members of the type `consumer` subscribe to: where a length is negative, or beyond what is left,
    the join is never answered."""
    request = exchange.asked.request
    if exchange.asked.api.name != "JoinGroup" or not isinstance(exchange.theirs, Silence):
        return False
    is_of_consumers = difference.path == "outcome" and request.protocol_type == "consumer"
    return is_of_consumers and any(_fails_to_be_read(each.metadata) for each in request.protocols)


def _waited_as_its_member_left(exchange: Exchange, difference: Difference) -> bool:
    """Kafka completes the JoinGroup of a member that is removed, and not its SyncGroup."""
    ours = exchange.ours
    is_of_sync = exchange.asked.api.name == "SyncGroup" and difference.path == "outcome"
    is_unanswered = isinstance(ours, Answer) and isinstance(exchange.theirs, Silence)
    return is_of_sync and is_unanswered and ours.message.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def _fails_to_be_read(subscription: bytes) -> bool:
    """As version 0, whatever version it says. What ends within a length, or before one, is none."""
    left = subscription[2:]
    count, left = int.from_bytes(left[:4], "big", signed=True), left[4:]
    if not 0 <= count <= len(left):
        return len(subscription) >= 6
    for _ in range(count):
        length, left = int.from_bytes(left[:2], "big", signed=True), left[2:]
        if not 0 <= length <= len(left):
            return True
        left = left[length:]
    return int.from_bytes(left[:4], "big", signed=True) > len(left[4:])


def _fails_in_kafka(exchange: Exchange, difference: Difference) -> bool:
    if not isinstance(exchange.theirs, Answer) or -1 not in error_codes(exchange.theirs.message):
        return False
    request = exchange.asked.request
    match exchange.asked.api.name:
        case "IncrementalAlterConfigs":
            is_odd = exchange.asked.damage_seed is not None or not _operations(request) <= _ON_ANYTHING
            return is_odd and difference.path.endswith("error_code") and difference.theirs == -1
        case "Fetch":
            sizes = [each.partition_max_bytes for topic in request.topics for each in topic.partitions]
            # A session is begun with a topic that has neither name nor id.
            is_nameless = any(not topic.topic and not any(topic.topic_id) for topic in request.topics)
            return is_nameless or min([request.max_bytes, *sizes]) < 0 or request.isolation_level not in (0, 1)
        case "Metadata":
            return any(topic.name is None and not any(topic.topic_id) for topic in request.topics)
        case "DescribeTopicPartitions":
            return any(topic.name in NOT_TOPICS for topic in request.topics)
        case "JoinGroup":
            return request.group_instance_id is not None and bool(request.member_id)
    return False


_OF_A_QUORUM = (
    "topics.partitions.leader_epoch",
    "topics.partitions.high_watermark",
    "topics.partitions.current_voters",
    "topics.partitions.observers",
    "nodes",
)


def _is_of_the_quorum(exchange: Exchange, difference: Difference) -> bool:
    path = without_names(difference.path)
    return exchange.asked.api.name == "DescribeQuorum" and path.startswith(_OF_A_QUORUM)


def _is_about_loggers(exchange: Exchange, difference: Difference) -> bool:
    return "[8/" in difference.path


def elects_another_leader(exchange: Exchange) -> bool:
    """Both answer a join of the same generation, and name another member its leader. That of the first generation has
    joined first, by both brokers' rules."""
    paths = {each.path for each in exchange.differences}
    if exchange.asked.api.name != "JoinGroup" or "leader" not in paths or "generation_id" in paths:
        return False
    return isinstance(exchange.ours, Answer) and exchange.ours.message.generation_id > 1


def _follows_another_leader(exchange: Exchange, difference: Difference) -> bool:
    is_of_leader = difference.path == "leader" or without_names(difference.path).startswith("members")
    return is_of_leader and elects_another_leader(exchange)


INT32_MAX = (1 << 31) - 1


def _is_beyond_an_int(exchange: Exchange, difference: Difference) -> bool:
    """Of a cursor so far behind that the end of its page is no int32."""
    request = exchange.asked.request
    if exchange.asked.api.name != "DescribeTopicPartitions" or request.cursor is None:
        return False
    is_beyond = request.cursor.partition_index + request.response_partition_limit > INT32_MAX
    path = without_names(difference.path)
    return is_beyond and (path == "topics" or path.startswith("next_cursor"))


def _asks_about_no_transaction(exchange: Exchange, difference: Difference) -> bool:
    is_asked_by_broker = exchange.asked.api.name == "AddPartitionsToTxn" and exchange.asked.version >= 4
    return is_asked_by_broker and not exchange.asked.request.transactions and isinstance(exchange.theirs, Silence)


def _is_of_a_replaced_producer(exchange: Exchange, difference: Difference) -> bool:
    """It ends again what its successor has ended by the older protocol."""
    if exchange.asked.api.name != "EndTxn" or exchange.asked.version < 5:
        return False
    ours, theirs = exchange.ours, exchange.theirs
    if not isinstance(ours, Answer) or not isinstance(theirs, Answer):
        return False
    codes = ours.message.error_code, theirs.message.error_code
    is_next = theirs.message.producer_epoch == exchange.asked.request.producer_epoch + 1
    return codes == (ErrorCode.PRODUCER_FENCED, ErrorCode.NONE) and is_next and bool(difference.path)


INTENDED: tuple[Intended, ...] = (
    Intended(
        "elected leaders",
        "a leader that has not rejoined is replaced: here by the oldest member that has, in Kafka by the hashes of ids",
        _follows_another_leader,
    ),
    Intended("versions", "ApiVersions lists what is served, and no features of KRaft.", _lists_fewer_versions),
    Intended("broker configs", "What has no effect is not among a broker's configs.", is_an_unknown_broker_config),
    Intended("configs of ours", "Ottla has properties that Kafka has not.", is_a_config_of_ours),
    Intended("a broker's own", "Addresses, directories and a few defaults are others.", is_the_brokers_own),
    Intended("logins", "There is no GSSAPI, and mechanisms are fixed at the start.", is_of_logins),
    Intended("TLS", "Stores are PEM, and only those of a listener are replaced while it serves.", is_of_tls),
    Intended("synonyms", "All places that can give a value are listed, also at their default.", is_a_synonym),
    Intended("fetchers", "Their number is that of the start.", is_fixed_here),
    Intended("named twice", "Each entry of a request has its answer, also of two alike.", _is_about_one_thing_twice),
    Intended("coordinators' logs", "Kafka writes more about a group than loading it needs.", _is_of_a_coordinators_log),
    Intended("null records", "Kafka never answers Produce with null for records.", _is_without_answer),
    Intended("which refusal", "Of several errors in one resource another one may be named.", _is_another_refusal),
    Intended("one of several", "A resource that is no good does not spoil the others.", _is_one_of_several),
    Intended("beside a bad batch", "It does not spoil what is produced to other partitions.", _is_beside_a_bad_batch),
    Intended("plus signs", "A number in a topic's configs is kept as it is shown later.", is_the_same_number),
    Intended("after a batch", "Kafka drops what is no whole batch, and acknowledges.", _is_after_a_batch),
    Intended("simple groups", "Kafka shows one without offsets sooner or later.", _is_of_an_empty_simple_group),
    Intended("subscriptions", "One that cannot be read makes no difference.", _has_an_unreadable_subscription),
    Intended("a broker's minimum", "What a broker cannot have may be removed.", removes_min_isr_of_a_broker),
    Intended("departed members", "A SyncGroup that waits is answered.", _waited_as_its_member_left),
    Intended("unknown to brokers", "A misspelt broker config is better refused than stored.", _is_unknown_to_brokers),
    Intended("cut within a batch", "Fetch returns whole batches.", _is_cut_within_a_batch),
    Intended("refused metadata", "It names the brokers also where it refuses.", _is_a_refusal_with_brokers),
    Intended("auto-created", "Metadata that creates a topic answers when it is there.", _is_auto_created),
    Intended("share groups", "They are not served.", _is_of_share_groups),
    Intended("false followers", "Who is no broker may not fetch as one.", _claims_to_be_a_broker),
    Intended("numbers of ACLs", "A request with one that there is not is answered.", _has_no_acl_number),
    Intended("damaged requests", "Text that is no UTF-8 ends the connection.", _is_damaged),
    Intended("server errors", "Where Kafka fails (-1), the error of its other answers for the like.", _fails_in_kafka),
    Intended("quorum", "The metadata is in a store, whose revisions stand for offsets.", _is_of_the_quorum),
    Intended("cursors", "Kafka adds up a cursor and the size of a page to a negative number.", _is_beyond_an_int),
    Intended("no transactions", "Kafka never answers a question about none.", _asks_about_no_transaction),
    Intended(
        "replaced producers", "Kafka gives one the epoch that has replaced it (KIP-890).", _is_of_a_replaced_producer
    ),
    Intended("loggers", "Each broker has its own.", _is_about_loggers),
)


def name_of(exchange: Exchange, difference: Difference) -> str | None:
    """The name of the intended difference that this one is, or None."""
    return next((each.name for each in INTENDED if each.covers(exchange, difference)), None)
