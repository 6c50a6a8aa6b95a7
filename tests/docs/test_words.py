"""Words that do not stand in identifiers, texts of the package, and documents, each with what to say instead.

Readers know Kafka: they search for Kafka's word. A word is listed here when it has no meaning in Kafka, when it has
another one there, or when it leaves the subject of a sentence unsaid. Comments and docstrings are not read here.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WORDS = {
    # Kafka has a name for it.
    r"ailing": "failed replica, offline partition",
    r"play(?:s|ed)? along": "disk error, log directory failure",
    r"farewells?": "session close, last response",
    r"condemn(?:s|ed)?": "schedule for deletion",
    r"bur(?:y|ies|ied)": "append tombstones",
    r"open door": "bound listening socket",
    r"seats?": "static member",
    r"storytell(?:er|ing)": "StoryReader, replay_history",
    # The sentence does not say who acts.
    r"nobody": "no replica, no member, no client: name the subject",
    r"whoever": "the caller, the client, the broker: name the subject",
    r"becomes of|comes of it": "the result, the outcome",
    # Plain English has a shorter word.
    r"anew": "again",
}
TABLE_HEADS = {"control": "baseline", "reach": "target"}

# Rooms that still have such words. None is added.
EXCEPTIONS: tuple[str, ...] = ()

_LISTED = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def findings_in(path: str, text: str) -> Iterator[str]:
    pieces = _pieces_of_code(text) if path.endswith(".py") else enumerate(text.splitlines(), start=1)
    for line, piece in pieces:
        for match in _LISTED.finditer(piece):
            say = next(say for word, say in WORDS.items() if re.fullmatch(word, match[0], re.IGNORECASE))
            yield f"{path}:{line}: {match[0]!r}; say: {say}"
        if piece.startswith("|"):
            for head in (cell.strip() for cell in piece.split("|")):
                if head in TABLE_HEADS:
                    yield f"{path}:{line}: column {head!r}; say: {TABLE_HEADS[head]}"


def _pieces_of_code(text: str) -> Iterator[tuple[int, str]]:
    """Identifiers, as words, and all texts but docstrings: help, meanings, log lines and errors."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    # A string that is a statement is a docstring, of an attribute too.
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, documented)]
    docstrings = {id(each.value) for body in bodies for each in body if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(value)) if id(node) not in docstrings:
                yield node.lineno, value
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, " ".join(_PARTS.findall(name))
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, " ".join(_PARTS.findall(name))
            case _:
                pass


def _files() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield ROOT / "CONTRIBUTING.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))
    for folder in ("ottla", "benchmarks", "examples"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def _all_findings() -> Iterator[str]:
    for path in _files():
        yield from findings_in(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))


def test_no_listed_word_stands_outside_the_excepted_rooms() -> None:
    found = [finding for finding in _all_findings() if not finding.startswith(EXCEPTIONS)]

    assert not found, "\n".join(found)


def test_every_excepted_room_still_needs_its_exception() -> None:
    found = list(_all_findings())

    clean = [room for room in EXCEPTIONS if not any(finding.startswith(room) for finding in found)]
    assert not clean, f"remove {clean} from EXCEPTIONS"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "ailing_replicas = 1"),
        ("a.py", "class AilingReplicas: pass"),
        ("a.py", "log.info('nobody is in sync')"),
        ("a.py", 'option("name", f"{1} whoever asks")'),
        ("a.md", "The table is written anew."),
        ("a.md", "| name | reach | unit |"),
    ],
)
def test_a_listed_word_is_found(path: str, text: str) -> None:
    assert len(list(findings_in(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"), [("a.py", '"""Nobody."""\nallows_trailing_bytes = 1'), ("a.md", "seated, reach | control")]
)
def test_other_words_and_docstrings_are_not_found(path: str, text: str) -> None:
    assert list(findings_in(path, text)) == []
