"""The examples of docs/wire.md work, and print what it says."""

import re
from pathlib import Path

import pytest

from ottla.cli.commands.wire import show
from tests.docs.pasting import blocks, paste, run_pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire.md"
CONSOLE = [each.text for each in blocks() if each.document == "docs/wire.md" and each.language == "console"]


def without_chance(line: str) -> str:
    """Times, member ids, and which connection it was."""
    line = re.sub(r"\d+\.\d+( ms| s)?", "0.0", line)
    line = re.sub(r"\(\d+/s\)", "(0/s)", line)
    line = re.sub(r"ottla-[0-9a-f-]{36}", "ottla-id", line)
    return " ".join(re.sub(r"#\d+", "#0", line).split())


def test_commands_print_what_is_written(tmp_path: Path) -> None:
    for text in CONSOLE:
        commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
        written = [line for line in text.splitlines() if not line.startswith("$ ")]
        if "echo $?" in commands:
            commands = [*commands[:-2], f"{commands[-2]} || echo $?"]

        printed = paste("\n".join(commands), "127.0.0.1:1", tmp_path).splitlines()

        if "-vv" in text:
            # Bytes of a member id are chance too.
            printed, written = ([line for line in each if "  00" in line] for each in (printed, written))
            assert [line.split()[0] for line in printed] == [line.split()[0] for line in written]
            printed, written = ([line[66:].split(":")[0] for line in each] for each in (printed, written))
        assert list(map(without_chance, printed)) == list(map(without_chance, written))


def test_test_of_the_document_passes(tmp_path: Path) -> None:
    (text,) = (each.text for each in blocks() if each.document == "docs/wire.md" and each.language == "python")
    file = tmp_path / "test_orders.py"
    file.write_text(text)

    assert "1 passed" in run_pytest(file)


@pytest.mark.parametrize("option", [option for each in show.params for option in each.opts if each.name != "file"])
def test_each_option_of_show_is_documented(option: str) -> None:
    assert f"`{option}" in DOCUMENT.read_text() or option == "--verbose"
