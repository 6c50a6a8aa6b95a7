"""A short siege, of the attacks that any machine can stand. What p99 becomes is judged by `make siege` alone, for here
the processors are shared with other tests."""

from pathlib import Path

import pytest

from tests.siege import siege
from tests.siege.attacks import ATTACKS


@pytest.mark.slow
def test_one_broker_comes_through_a_short_siege(tmp_path: Path) -> None:
    attacks = [ATTACKS[name] for name in ("small-requests", "connections", "half-open", "slow-fetchers")]

    report = siege.run(tmp_path / "siege", attacks, seed="1", duration_s=48, waits_to_the_end=False)

    assert report.broken(judges_latency=False) == []
    assert [each.attack for each in report.rounds] == attacks
    assert all(each.done["connections"] > 0 and each.acknowledged > 0 for each in report.rounds)
    assert all(each.quiet_ms and each.loud_ms for each in report.rounds)


def test_attacks_are_known_by_their_names() -> None:
    assert all(attack.name == name for name, attack in ATTACKS.items())
    assert all(attack.__doc__ or attack.__module__ for attack in ATTACKS.values())
