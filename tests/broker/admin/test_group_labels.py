"""Whose a group is, as the file of `ottla.metrics.group.labels` says (docs/operators.md §4.6)."""

from pathlib import Path

import pytest

from ottla.broker.admin.metrics.group_labels import GroupLabels, read_group_labels
from ottla.broker.broker import StartError
from tests.broker.admin.test_metrics import committed, observed, scraped, value
from tests.broker.clusters import create_topic
from tests.broker.wire import client_of, produce

TEAMS = """# whose groups these are
billing-      payments
billing-test- testers

mail          "letters"
"""


def written(directory: Path, text: str = TEAMS) -> str:
    path = directory / "teams"
    path.write_text(text)
    return str(path)


def test_longest_prefix_says_whose_a_group_is(tmp_path: Path) -> None:
    names = read_group_labels(written(tmp_path))

    assert names.of("billing-eu") == 'group="billing-eu",team="payments"'
    assert names.of("billing-test-1", verdict="ok") == 'group="billing-test-1",team="testers",verdict="ok"'
    assert names.of_partition("mail", "t", 3) == r'group="mail",team="\"letters\"",topic="t",partition="3"'
    assert names.of_topic("billing", "t") == 'group="billing",topic="t"'


def test_line_of_a_star_is_for_all_other_groups(tmp_path: Path) -> None:
    names = read_group_labels(written(tmp_path, "* platform\nmail letters\n"))

    assert names.of("shop") == 'group="shop",team="platform"'
    assert names.of("mailing") == 'group="mailing",team="letters"'


def test_without_a_file_groups_have_their_names_alone() -> None:
    assert read_group_labels(None).of("g") == GroupLabels().of("g") == 'group="g"'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("billing", "line 1 of {} is not PREFIX TEAM, two words: 'billing'"),
        ("# a\na b c", "line 2 of {} is not PREFIX TEAM, two words: 'a b c'"),
        ("a b\na c", "line 2 of {} gives a another team than b"),
    ],
)
def test_file_that_says_something_else_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(StartError) as refused:
        read_group_labels(path)
    assert str(refused.value) == f"ottla.metrics.group.labels: {sentence.format(path)}"


async def test_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"ottla\.metrics\.group\.labels: /nowhere cannot be read: No such file"):
        async with observed(tmp_path, ottla_metrics_group_labels="/nowhere"):
            pass


async def test_series_of_a_group_have_its_team(tmp_path: Path) -> None:
    async with observed(tmp_path / "data", ottla_metrics_group_labels=written(tmp_path)) as broker:
        await create_topic(broker, "t", [0])
        async with client_of(broker) as client:
            await produce(client, "t", b"one", b"two")
        for group in ("billing-eu", "shop"):
            assert await committed(broker, group, 2) == 0
        found = await scraped(broker.admin_url)

    of_billing = {"group": "billing-eu", "team": "payments"}
    assert value(found, "group_lag_records", **of_billing, topic="t", partition=0) == 0
    assert value(found, "group_lag_seconds", **of_billing, topic="t") == 0
    assert value(found, "group_members", **of_billing) == 0
    assert value(found, "group_commits_total", **of_billing) == 1
    assert value(found, "group_verdict", **of_billing, verdict="ok") == 1
    assert value(found, "group_members", group="shop") == 0
    assert {dict(labels).get("team") for name, labels in found if ("group", "billing-eu") in labels} == {"payments"}
