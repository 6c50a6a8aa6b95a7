"""`make nightly` runs what tests say of it."""

import re
from pathlib import Path

# What it reaches by targets of its own.
BY_TARGETS = {"tests/simulation/test_transactions.py"}


def recipe() -> list[str]:
    text = Path("Makefile").read_text().split("\nnightly: $(VENV)")[1].split("\n\n")[0]
    return text.splitlines()[1:]


def sources() -> dict[str, str]:
    files = [path for path in Path("tests").rglob("test_*.py") if "structure" not in path.parts]
    return {path.as_posix(): path.read_text() for path in files}


def test_files_that_name_nightly_are_run_by_it() -> None:
    naming = {path for path, text in sources().items() if "make nightly" in text} - BY_TARGETS
    run = {path for line in recipe() for path in re.findall(r"tests/[\w/]+\.py", line)}

    assert len(naming) > 5
    assert naming - run == set()


def test_nightly_sets_each_switch_for_each_file_that_reads_it() -> None:
    switches = {name for line in recipe() for name in re.findall(r"(OTTLA_[A-Z_]+)=", line)}
    assert "OTTLA_WALKS" in switches
    for path, text in sources().items():
        for switch in switches & set(re.findall(r"\"(OTTLA_[A-Z_]+)\"", text)):
            assert [line for line in recipe() if f"{switch}=" in line and path in line], f"{path} reads {switch}"
