"""Whole worlds: a few here, hundreds in `make sim`; and one seed is one story, whatever the interpreter's hashes."""

import os
import subprocess
import sys

import pytest

from tests.simulation import __main__ as simulation
from tests.simulation.__main__ import main
from tests.simulation.met import SEEDS_THAT_MEET_ALL, TO_MEET
from tests.simulation.world import Outcome, World


def simulate(*arguments, hash_seed="0"):
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


# 285: a commit was acknowledged before it was on the disk, with a sync for every write.
# 29_351: what a broker had not synced when it was killed counted as committed when it came back.
@pytest.mark.parametrize("seed", [*range(1_000, 1_006), 285, 29_351, 160_269])
def test_the_invariants_hold(seed):
    assert World(seed).run().violations == []


def test_a_seed_has_one_trace_whatever_the_hash_seed():
    first, second = (
        simulate("--first", "16", "--seeds", "2", "--hashes", hash_seed=hash_seed) for hash_seed in ("1", "4711")
    )
    hashes = [line for line in first.stdout.splitlines() if line.startswith("seed")]
    assert len(hashes) == 4
    assert hashes == [line for line in second.stdout.splitlines() if line.startswith("seed")]


def test_a_kept_trace_has_the_same_hash_as_one_that_is_not_kept():
    kept, forgotten = World(18, keep_trace=True).run(), World(18).run()
    assert kept.digest == forgotten.digest
    assert len(kept.lines) > 1_000


def test_failing_seed_is_named_with_the_command_to_repeat_it(monkeypatch, capsys):
    run = World.run

    def fail(world):
        world.judge.violated("I-0", "as this test wanted")
        return run(world)

    monkeypatch.setattr(World, "run", fail)
    monkeypatch.setattr(sys, "argv", ["simulation", "--world", "broker", "--seeds", "1", "--first", "42"])
    assert main() == 1
    printed = capsys.readouterr().out
    assert "seed 42 FAILED" in printed
    assert "I-0: as this test wanted" in printed
    assert "again: python -m tests.simulation --world broker --seeds 1 --first 42" in printed
    assert "0 of 1 seeds passed" in printed


@pytest.mark.parametrize(("seeds", "status"), [(SEEDS_THAT_MEET_ALL, 1), (SEEDS_THAT_MEET_ALL - 1, 0)])
def test_what_no_seed_of_a_hundred_met_is_named(monkeypatch, capsys, seeds, status):
    met = dict.fromkeys(TO_MEET["broker"] - {"kill", "stop"}, 1)
    outcome = Outcome(seed=0, digest="", violations=[], counts=met, steps=1, virtual_ms=1)
    monkeypatch.setattr(simulation, "_outcomes", lambda *_: iter([outcome]))
    monkeypatch.setattr(sys, "argv", ["simulation", "--world", "broker", "--seeds", str(seeds)])

    assert main() == status
    assert ("broker: no seed met kill, stop" in capsys.readouterr().out) is bool(status)
