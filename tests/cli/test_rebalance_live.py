"""The example that README opens with."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_example_shows_each_rebalance_with_reason_and_owners() -> None:
    command = [sys.executable, str(ROOT / "examples" / "rebalance_live.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    reasons = re.findall(r"rebalance: (.*)", done.stdout)
    assert [reason.strip() for reason in reasons] == [
        "member joined (anna)",
        "member joined (bruno)",
        "member joined (clara)",
        "member left (bruno)",
        "session expired (clara)",
        "member left (anna)",
    ]
    owners = [sorted(set(re.findall("anna|bruno|clara", line))) for line in re.findall("✓ (.*)", done.stdout)]
    assert owners == [["anna"], ["anna", "bruno"], ["anna", "bruno", "clara"], ["anna", "clara"], ["anna"]]
