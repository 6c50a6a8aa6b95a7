"""Differences from Apache Kafka 4.1 that are meant, each by a name and with the reason.

One that users can notice is described in docs/compatibility.md too.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.config.definitions import SERVER_OPTIONS
from tests.differential.comparing import Difference, Missing, without_names
from tests.differential.drawing import names_something_twice
from tests.differential.exchange import Exchange


class Intended(NamedTuple):
    name: str
    reason: str
    covers: Callable[[Exchange, Difference], bool]


def _lists_fewer_versions(exchange: Exchange, difference: Difference) -> bool:
    return exchange.asked.api.name == "ApiVersions" and not difference.path.startswith("error_code")


def _is_an_unknown_broker_config(exchange: Exchange, difference: Difference) -> bool:
    is_theirs_alone = isinstance(difference.ours, Missing) and isinstance(difference.theirs, dict)
    return (
        exchange.asked.api.name == "DescribeConfigs"
        and without_names(difference.path) == "results.configs"
        and is_theirs_alone
        and difference.theirs["name"] not in SERVER_OPTIONS
    )


def _is_about_one_thing_twice(exchange: Exchange, difference: Difference) -> bool:
    return exchange.asked.api.name != "Produce" and names_something_twice(exchange.asked.request)


def _is_the_size_of_a_coordinators_log(exchange: Exchange, difference: Difference) -> bool:
    return "__consumer_offsets" in difference.path and difference.path.endswith("partition_size")


INTENDED: tuple[Intended, ...] = (
    Intended(
        "versions", "ApiVersions lists what is served, and no features: those are of KRaft.", _lists_fewer_versions
    ),
    Intended(
        "broker configs",
        "A property without effect here is not among a broker's configs.",
        _is_an_unknown_broker_config,
    ),
    Intended(
        "named twice",
        "Each entry of a request has its answer, also where two are about the same.",
        _is_about_one_thing_twice,
    ),
    Intended(
        "size of a coordinator's log",
        "Kafka writes more records about a group than are needed to load it.",
        _is_the_size_of_a_coordinators_log,
    ),
)


def name_of(exchange: Exchange, difference: Difference) -> str | None:
    """The name of the intended difference that this one is, or None."""
    return next((each.name for each in INTENDED if each.covers(exchange, difference)), None)
