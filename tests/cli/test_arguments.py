import click
import pytest

from ottla.cli.arguments import PartitionArgument, Seconds, parse_partition, parse_replicas


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("words", PartitionArgument("words", None, None)),
        ("words:3", PartitionArgument("words", 3, None)),
        ("words:3=1,2, 3", PartitionArgument("words", 3, (1, 2, 3))),
        ("a.b-c_d:0=7", PartitionArgument("a.b-c_d", 0, (7,))),
    ],
)
def test_a_partition_is_written_with_as_much_as_is_meant(text: str, parsed: PartitionArgument) -> None:
    assert parse_partition(text) == parsed


@pytest.mark.parametrize("text", ["", ":1", "t:", "t:x", "t:-1", "t=1", "t:1:2", "=1"])
def test_what_is_no_partition_is_said(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not TOPIC:PARTITION"):
        parse_partition(text)


@pytest.mark.parametrize("text", ["", "1,", "1,,2", "a", "-1", "1;2"])
def test_what_are_no_node_ids_is_said(text: str) -> None:
    with pytest.raises(click.UsageError, match="are not node ids with commas between them"):
        parse_replicas(text)


@pytest.mark.parametrize(("text", "seconds"), [("15", 15.0), ("2s", 2.0), ("0.5s", 0.5)])
def test_seconds_may_have_their_unit(text: str, seconds: float) -> None:
    assert Seconds(max=40).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["s", "2m", "41", "2ss"])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        Seconds(max=40).convert(text, None, None)
