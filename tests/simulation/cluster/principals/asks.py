"""What a request of a principal is, and how its answer is held against what the principal may."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Message, fields_of
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS
from tests.simulation.cluster.principals.rights import Seen

# Names that the principals ask about: those that there are at the beginning, those that are sometimes there, and one
# that never is.
TOPICS = ("vault", "valley")
PASSING_TOPICS = ("vault-1", "void")
NOWHERE = "nowhere"
NAMES = (*TOPICS, *PASSING_TOPICS, NOWHERE)
# Of clients of the world: they are read, and not written to.
READABLE = (*NAMES, "alpha")
GROUPS = ("vgroup", "vgroup-1", "wgroup")
TRANSACTIONAL_IDS = ("vpay", "wpay")
UNKNOWN_ID = b"no topic has it."
NO_ID = bytes(16)

TOPIC_CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_CODE = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_CODE = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = frozenset({TOPIC_CODE, GROUP_CODE, CLUSTER_CODE, ID_CODE})
NOT_ASKED = -(2**31)

Wrong = Callable[[Seen, Any], str | None]
"""Why this answer is not one to who may so much; None where it is."""
May = Callable[[Seen], bool]


@dataclass
class Deed:
    """What a request leaves behind that nothing else does, if it is carried out."""

    what: Any
    may: May


@dataclass
class Ask:
    request: Any
    version: int
    wrong: Wrong
    leader_of: tuple[str, int] | None = None
    """Sent to the leader of the partition; else to whatever broker."""
    coordinator_of: str | None = None
    """The same for a group."""
    transactional_id: str | None = None
    """The same for a transactional id."""
    within_ms: int = REQUEST_TIMEOUT_MS
    deeds: list[Deed] = field(default_factory=list)
    described: bool = False
    """Whether the answer lists ACLs."""
    took: Callable[[Any], None] = lambda _: None
    """Called with the answer when it has been judged."""


class Draw:
    """The random numbers of one principal, and names of which no two are alike in a run."""

    def __init__(
        self,
        rng: random.Random,
        counter: Iterator[int],
        ids: Callable[[str], bytes | None],
        wall_ms: Callable[[], int],
        *,
        creates: bool,
    ) -> None:
        """`ids`: of topics that there are. `creates`: whether brokers create topics that clients ask for."""
        self.creates = creates
        self.rng = rng
        self.wall_ms = wall_ms
        self.number = counter.__next__
        self._ids = ids

    def names(self, names: tuple[str, ...] = NAMES, at_most: int = 3) -> list[str]:
        return self.rng.sample(names, self.rng.randint(1, at_most))

    def group(self) -> str:
        return self.rng.choice(GROUPS)

    def version(self, lowest: int, highest: int) -> int:
        return self.rng.randint(lowest, highest)

    def id_of(self, name: str) -> bytes:
        return self._ids(name) or UNKNOWN_ID


def codes_in(message: Message) -> Iterator[int]:
    """Every error code of a response."""
    for each in fields_of(type(message)):
        value = getattr(message, each.name)
        if each.name.endswith("error_code"):
            yield value
        elif isinstance(value, Message):
            yield from codes_in(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Message):
                    yield from codes_in(item)


def wrong_code(what: str, code: int, refusal: int, *, is_allowed: bool) -> str | None:
    """`refusal` is the code of what is not allowed."""
    if is_allowed and code in REFUSALS:
        return f"{what} is allowed and was answered {ErrorCode(code).name}"
    if not is_allowed and code != refusal:
        return f"{what} is denied and was answered {ErrorCode(code).name}"
    return None


def first_wrong(wrongs: Iterator[str | None]) -> str | None:
    return next((wrong for wrong in wrongs if wrong is not None), None)


def wrong_if_shown(what: str, shown: dict[str, Any], hidden: dict[str, Any]) -> str | None:
    """A refusal has what `hidden` says and nothing else, whether there is such a thing or not."""
    leaked = {name: value for name, value in shown.items() if value != hidden[name]}
    return f"{what} is denied and its answer shows {leaked}" if leaked else None
