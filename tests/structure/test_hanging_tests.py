"""The test command comes to an end also where a test hangs that no timeout of Python's can reach."""

import re
import subprocess
import sys
from pathlib import Path

MAKEFILE = Path("Makefile")
HANGS_WITH_PYTHONS_LOCK = """
import ctypes

def test_before(): ...
def test_hangs(): ctypes.PyDLL(None).sleep(300)
def test_after(): ...
"""


def shared_out() -> list[str]:
    """The options of pytest that the targets of the Makefile share."""
    text = MAKEFILE.read_text().replace("\\\n", " ")
    (options,) = re.findall(r"^SHARED_OUT := (.*)$", text, re.MULTILINE)
    return str(options).split()


def test_a_hang_in_compiled_code_fails_and_ends_the_run(tmp_path: Path) -> None:
    options = shared_out()
    assert "faulthandler_timeout=900" in options
    options[options.index("faulthandler_timeout=900")] = "faulthandler_timeout=1"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_hanging.py").write_text(HANGS_WITH_PYTHONS_LOCK)
    (tmp_path / "test_other.py").write_text("def test_passes(): ...\n")

    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", "2", *options]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1, ended.stdout
    assert "crashed while running 'test_hanging.py::test_hangs'" in ended.stdout
    assert re.search(r"1 failed, \d passed", ended.stdout)
    assert "test_hangs" in ended.stderr, "the stacks"
