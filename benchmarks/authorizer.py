"""What an authorizer with 10,000 ACLs costs a small request: `python -m benchmarks authorizer`.

The client is not a super user: ACLs allow its requests, among those of a thousand others.
"""

from benchmarks import processes
from benchmarks.figure import Figure, interleave
from benchmarks.raw_client import (
    RawClient,
    batch,
    create_topic,
    fetch_frame,
    heartbeat_frame,
    joined_member,
    processor_us,
    produce_frame,
)
from ottla.broker.config.server_security import STANDARD_AUTHORIZER
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.security.acl import AclOperation, PatternType, Permission, ResourceType

ROUNDS = 9
# How many requests there are, and how many of them are on their way at a time.
WAYS = (("unpipelined", 4_000, 1), ("pipelined", 20_000, 100))
ACLS = 10_000
OTHERS = 1_000
TOPIC, GROUP = "small", "bench"
ME = "User:ANONYMOUS"
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": "0"}
SECURED = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:admin",
    # Until the first ACL about a resource: so the client can make them.
    "allow_everyone_if_no_acl_found": "true",
}


def figures() -> list[Figure]:
    processes.pin_client()
    with processes.broker(**QUICK_GROUPS | SECURED) as ours, processes.broker(**QUICK_GROUPS) as plain:
        secured, bare = RawClient(ours.port), RawClient(plain.port)
        _create_acls(secured)
        frames = list(zip(_frames(secured), _frames(bare), strict=True))
        found = []
        for how, count, window in WAYS:
            for (name, with_acls), (_, without) in frames:
                with_authorizer = processor_us(ours, secured, with_acls, count, window)
                bare_broker = processor_us(plain, bare, without, count, window)
                title = f"{how} {name} with {ACLS:,} ACLs, processor time"
                pairs = interleave(ROUNDS, with_authorizer, bare_broker)
                found.append(Figure(title, "without an authorizer", "µs", pairs, at_most=1.10))
        return found


def _frames(client: RawClient) -> list[tuple[str, bytes]]:
    create_topic(client, TOPIC)
    member_id, generation = joined_member(client, GROUP)
    return [
        ("Heartbeat", heartbeat_frame(GROUP, generation, member_id)),
        ("one-record Produce", produce_frame(TOPIC, batch(1, 100))),
        ("Fetch of one record", fetch_frame(TOPIC, 0, 1)),
    ]


def _create_acls(client: RawClient) -> None:
    """Those of others on names of all kinds, and the client's own."""
    acls = [
        acl(f"User:u{number % OTHERS}", ResourceType.TOPIC, f"{TOPIC[: number % 6]}-{number}", number % 3 == 0)
        for number in range(ACLS - 3)
    ]
    acls += [acl(ME, kind, name, False) for kind, name in ((ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, GROUP))]
    acls.append(acl(ME, ResourceType.TOPIC, TOPIC, False, AclOperation.WRITE))
    for start in range(0, len(acls), 1_000):
        request = CreateAclsRequest(creations=acls[start : start + 1_000])
        response = client.call(request, CreateAclsResponse, 2)
        assert isinstance(response, CreateAclsResponse)
        assert not any(each.error_code for each in response.results)


def acl(
    principal: str, kind: ResourceType, name: str, is_prefixed: bool, operation: AclOperation = AclOperation.READ
) -> AclCreation:
    return AclCreation(
        resource_type=int(kind),
        resource_name=name,
        resource_pattern_type=int(PatternType.PREFIXED if is_prefixed else PatternType.LITERAL),
        principal=principal,
        host="*",
        operation=int(operation),
        permission_type=int(Permission.ALLOW),
    )
