"""Two trees are compared only if they are two, and fairly only if neither is always the first."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.revisions import __main__ as command
from benchmarks.revisions.trees import Tree, TreeError, this_tree, tree_of
from benchmarks.revisions.turns import Comparison, Measured, Pair, Row, by_runs, by_turns

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
ROW = Row("speed", "µs")
OLDER_PACKAGE = """
import sys
print(f"ready bootstrap=127.0.0.1:{1 + sys.argv.count('a=b')}", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Its second commit has a package `ottla` that says it is ready and does nothing else; the first has none."""
    root = tmp_path / "repository"
    (root / "ottla").mkdir(parents=True)
    (root / "ottla" / "__init__.py").write_text("")
    (root / "ottla" / "__main__.py").write_text(OLDER_PACKAGE)
    author = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    commit = (*author, "commit", "--quiet", "-m", "Change something")
    for arguments in (("init", "--quiet"), (*commit, "--allow-empty"), ("add", "."), commit):
        subprocess.run(["git", "-C", str(root), *arguments], check=True)
    return root


@needs_git
def test_broker_of_a_revision_is_of_its_tree(repository: Path, tmp_path: Path) -> None:
    tree = tree_of("HEAD", tmp_path / "older", repository)

    with tree.broker() as server:
        assert server.port == 1
    assert tree.output("-c", "import ottla; print(ottla.__file__)").strip() == str(
        tmp_path / "older" / "ottla" / "__init__.py"
    )


@needs_git
def test_settings_are_those_of_one_tree(repository: Path, tmp_path: Path) -> None:
    """The package says by its port how often it has been given the setting."""
    shutil.copytree(repository / "ottla", tmp_path / "this" / "ottla")
    this, older = Tree("this", tmp_path / "this", ["a=b"]), tree_of("HEAD", tmp_path / "older", repository)
    of_revision = tree_of("HEAD", tmp_path / "of", repository, settings=["a=b"])

    with this.broker() as with_setting, older.broker() as without, of_revision.broker() as as_given:
        assert (with_setting.port, without.port, as_given.port) == (2, 1, 2)


def test_this_tree_is_a_copy_with_bytecode(tmp_path: Path) -> None:
    this_tree(tmp_path / "this")

    assert list((tmp_path / "this" / "ottla" / "__pycache__").glob("__init__.*.pyc"))


def test_tree_that_python_does_not_import_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(TreeError, match="Python imports ottla of empty from"):
        Tree("empty", tmp_path / "empty")


@needs_git
@pytest.mark.parametrize("revision", ["nonsense", "--help"])
def test_revision_that_does_not_exist_is_refused(revision: str, repository: Path, tmp_path: Path) -> None:
    with pytest.raises(TreeError) as refused:
        tree_of(revision, tmp_path / "older", repository)

    assert str(refused.value) == f"There is no revision {revision!r} in {repository}."


@needs_git
def test_revision_without_the_package_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="'HEAD~1' has no package ottla"):
        tree_of("HEAD~1", tmp_path / "older", repository)


def test_command_refuses_such_a_revision_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(revision: str, _directory: Path) -> Tree:
        raise TreeError(f"There is no revision {revision}.")

    monkeypatch.setattr(command, "this_tree", lambda directory, _settings: directory)
    monkeypatch.setattr(command, "tree_of", refuse)
    monkeypatch.setattr(sys, "argv", ["revisions", "nonsense"])

    assert command.main() == 2
    assert capsys.readouterr().err == "There is no revision nonsense.\n"


class NamedTree(Tree):
    """Stands for a tree where nothing is started."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_either_tree_is_started_and_measured_first_as_often() -> None:
    this, older = NamedTree("this"), NamedTree("older")
    events: list[str] = []

    @contextmanager
    def prepare(tree: Tree) -> Iterator[Measured]:
        events.append(f"start {tree.name}")

        def measure() -> float:
            events.append(tree.name)
            return 1.0

        yield {ROW: measure}

    rows = by_turns(this, older, prepare, 2, 2)

    assert events == [
        *("start this", "start older", "this", "older", "older", "this"),
        *("start older", "start this", "older", "this", "this", "older"),
    ]
    assert rows == {ROW: [Pair(1.0, 1.0), Pair(1.0, 1.0)]}


def test_of_each_start_the_median_turn_after_the_first_counts() -> None:
    values = {"this": iter([9.0, 1.0, 3.0, 2.0]), "older": iter([1.0, 1.0, 1.0, 1.0])}

    @contextmanager
    def prepare(tree: Tree) -> Iterator[Measured]:
        yield {ROW: lambda: next(values[tree.name])}

    rows = by_turns(NamedTree("this"), NamedTree("older"), prepare, 1, 4)

    assert rows == {ROW: [Pair(2.0, 1.0)]}


def test_row_that_the_older_tree_lacks_is_left_out() -> None:
    values = {"this": {ROW: 2.0, Row("transaction", ""): 1.0}, "older": {ROW: 1.0}}

    rows, missing = by_runs(NamedTree("this"), NamedTree("older"), lambda tree: values[tree.name], 2)

    assert rows == {ROW: [Pair(2.0, 1.0), Pair(2.0, 1.0)]}
    assert missing == {Row("transaction", "")}


@pytest.mark.parametrize(
    ("ratios", "difference", "meets"),
    [
        ([0.9, 1.03, 1.2], "not seen", False),
        ([1.04, 1.05, 1.06], "more", False),
        ([0.8, 0.9, 0.95], "less", True),
        ([1.0, 1.0, 1.0], "none", True),
    ],
)
def test_difference_that_the_spread_hides_is_not_seen(ratios: list[float], difference: str, meets: bool) -> None:
    comparison = Comparison(ROW, [Pair(ratio, 1.0) for ratio in ratios])

    assert (comparison.difference, comparison.meets_target) == (difference, meets)


def test_row_above_the_target_fails_and_stands_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {Row("start", "ms"): [Pair(20_001.0, 20_000.0)] * 2, Row("memory", "MiB"): [Pair(1.06, 1.0)] * 2}
    monkeypatch.setattr(command, "this_tree", lambda *_: NamedTree("this tree"))
    monkeypatch.setattr(command, "tree_of", lambda *_: NamedTree("0123abcd"))
    monkeypatch.setitem(command.PARTS, "starts", lambda *_: rows)
    monkeypatch.setattr(sys, "argv", ["revisions", "HEAD", "starts", "--markdown"])

    assert command.main() == 1
    table, complaints = capsys.readouterr()
    assert table.splitlines() == [
        "| figure | this tree | 0123abcd | ratio | quartiles | difference | target |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| start | 20,001 ms | 20,000 ms | 1.000 | 1.000 to 1.000 | more | ≤ 1.02 |",
        "| memory | 1.06 MiB | 1 MiB | 1.060 | 1.060 to 1.060 | more | ≤ 1.02 |",
    ]
    assert "target missed: memory (more)" in complaints


def test_revision_takes_the_place_of_this_tree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trees: list[tuple[str, Sequence[str]]] = []

    def tree(revision: str, _directory: Path, *, settings: Sequence[str] = ()) -> Tree:
        trees.append((revision, settings))
        return NamedTree(revision)

    monkeypatch.setattr(command, "tree_of", tree)
    monkeypatch.setitem(command.PARTS, "starts", lambda *_: {Row("start", "ms"): [Pair(1.0, 1.0)] * 2})
    monkeypatch.setattr(sys, "argv", ["revisions", "older", "starts", "--of", "newer", "--set", "a=b", "--markdown"])

    assert command.main() == 0
    assert trees == [("newer", ["a=b"]), ("older", ())]
    assert capsys.readouterr().out.startswith("| figure | newer | older |")
