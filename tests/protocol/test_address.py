"""HOST:PORT in every form that is accepted, and those that are not."""

import pytest

from ottla.protocol.address import Address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("a:1, b:2", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9092", [Address("::1", 9092)]),
    ],
)
def test_addresses_are_host_and_port(text: str, addresses: list[Address]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:", ":9092", "a:0", "a:65536", "a:x", "a:1,", "a:²", "::1:9092", "a:-1"]
)
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_addresses(text)


def test_port_0_and_an_empty_host_are_accepted_where_allowed() -> None:
    assert parse_address("a:0", port_min=0) == Address("a", 0)
    assert parse_address(":9092", host_required=False) == Address("", 9092)


@pytest.mark.parametrize("text", ["localhost:9092", "[::1]:9092"])
def test_address_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_address(text)) == text
