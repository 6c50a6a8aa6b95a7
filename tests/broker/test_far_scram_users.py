"""Users altered at a broker whose metadata store is far away, or does not answer (§80.4)."""

from collections.abc import Iterator

import pytest

from ottla.broker.metadata.scram_users import ScramUserManager
from ottla.cluster.scram_users import ScramDeletion, ScramUpsertion
from ottla.cluster.store import SCRAM, Changes, Snapshot, Unavailable
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.security.scram_credential import ScramHash
from tests.broker.virtual_cluster import Cluster, Node

ALICE = ScramHash.SHA_256, "alice"
DELETION = ScramDeletion("alice", 1)


def upsertion(number: int) -> ScramUpsertion:
    return ScramUpsertion("alice", 1, 4096, b"salt of %08d" % number, bytes(32))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


def manager(node: Node) -> ScramUserManager:
    return node.broker.parts.scram_users


async def refusals(cluster: Cluster, node: Node, *alterations: ScramDeletion | ScramUpsertion) -> dict[str, ErrorCode]:
    refused = await cluster.spawn(node, manager(node).alter(alterations))
    return {user: error.code for user, error in refused.items()}


def test_no_user_is_missing_while_the_store_does_not_answer(cluster: Cluster) -> None:
    async def story() -> None:
        first, second = await cluster.started(1, 2)
        cuts = cluster.cut_off(second)
        assert await refusals(cluster, first, upsertion(1)) == {}
        with pytest.raises(KafkaError) as raised:
            await refusals(cluster, second, DELETION)
        cluster.links.heal(*cuts)

        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert ALICE not in second.broker.image.scram_credentials
        await cluster.until(lambda: ALICE in second.broker.image.scram_credentials)

    cluster.run(story())


def test_a_user_deleted_and_made_again_elsewhere_is_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image that is old shows another credential of the user, and the one after it none."""

    async def story() -> None:
        first, second = await cluster.started(1, 2)
        await refusals(cluster, first, upsertion(1))
        await cluster.until(lambda: ALICE in second.broker.image.scram_credentials)
        hold = Holding(second, monkeypatch)
        await refusals(cluster, first, DELETION)
        await refusals(cluster, first, upsertion(2))
        await cluster.until(lambda: len(hold.held) >= 2)
        assert second.broker.image.scram_credentials[ALICE].salt == upsertion(1).salt
        deleted = cluster.loop.create_task(refusals(cluster, second, DELETION))
        await cluster.until(lambda: hold.has_read)
        hold.release()

        assert await deleted == {}

    cluster.run(story())


class Holding:
    """Keeps what the watch of a broker delivers from its image."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        metadata = node.broker.metadata
        self.held: list[Snapshot | Changes] = []
        self.has_read = False
        self._metadata = metadata
        self._monkeypatch = monkeypatch
        self._apply = metadata._apply
        read = metadata.read

        async def note(prefix: str) -> Snapshot | Unavailable:
            found = await read(prefix)
            self.has_read |= prefix.startswith(SCRAM)
            return found

        monkeypatch.setattr(metadata, "_apply", self.held.append)
        monkeypatch.setattr(metadata, "read", note)

    def release(self) -> None:
        self._monkeypatch.setattr(self._metadata, "_apply", self._apply)
        for event in self.held:
            self._apply(event)
