"""How the doctor asks: a bounded number of requests, and what is not answered is noted instead of raised."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ottla.cli.client import Client, TopicPartition
from ottla.cli.doctor.findings import NotChecked
from ottla.cli.failures import ClientError
from ottla.protocol.address import Address
from ottla.protocol.schema import Message

REQUESTS_MAX = 200
# Of one request: an answer of some hundred kilobytes.
PARTITIONS_PER_REQUEST = 2000

Response = TypeVar("Response", bound=Message)
Item = TypeVar("Item")


class Asker:
    """`brokers` are those that can be reached from here, by node id."""

    def __init__(self, client: Client, brokers: Mapping[int, Address], requests_max: int = REQUESTS_MAX) -> None:
        self.client = client
        self.brokers = brokers
        self.requests = 0
        self._requests_max = requests_max
        self._notes: dict[NotChecked, None] = {}

    @property
    def notes(self) -> list[NotChecked]:
        return list(self._notes)

    def note(self, check: str, reason: str) -> None:
        self._notes[NotChecked(check, reason)] = None

    async def ask(
        self,
        check: str,
        what: str,
        node_id: int,
        request: Message,
        answer: type[Response],
        *,
        highest: int | None = None,
    ) -> Response | None:
        """None, and a note, where the broker does not answer. `what` is what is not known then."""
        if self.requests >= self._requests_max:
            self.note(check, f"the doctor sends {self._requests_max} requests at most: not all {what} were read")
            return None
        self.requests += 1
        try:
            return await self.client.ask_at(self.brokers[node_id], request, answer, highest=highest)
        except ClientError as error:
            self.note(check, f"{what} of broker {node_id}: {error}")
            return None

    async def ask_leaders(
        self,
        check: str,
        what: str,
        by_leader: Mapping[int, Sequence[TopicPartition]],
        build: Callable[[Sequence[TopicPartition]], Message],
        answer: type[Response],
    ) -> list[Response]:
        """Page after page from each broker, all brokers at once."""

        async def of_leader(node_id: int, partitions: Sequence[TopicPartition]) -> list[Response]:
            found: list[Response] = []
            for page in pages(partitions, PARTITIONS_PER_REQUEST):
                response = await self.ask(check, what, node_id, build(page), answer)
                if response is None:
                    break
                found.append(response)
            return found

        answers = await asyncio.gather(*(of_leader(*each) for each in by_leader.items()))
        return [each for found in answers for each in found]


def pages(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for name, index in partitions:
        by_topic.setdefault(name, []).append(index)
    return by_topic
