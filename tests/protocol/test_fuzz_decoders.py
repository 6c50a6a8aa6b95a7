"""A short run of the fuzz; longer ones are for the fuzz runner."""

from tests.protocol.fuzz_decoders import run


def test_damaged_messages_parse_or_are_refused() -> None:
    parsed = run(seed=1, inputs=6000)

    assert parsed > 100, "damage so heavy that nothing parses tests little"
