"""Words that do not stand in code, documents and file names, each with what to say instead.

Readers know Kafka: they search for Kafka's word. A word is listed here when it has no meaning in Kafka, when it has
another one there, or when it leaves the subject of a sentence unsaid. Of code identifiers, texts, docstrings and
comments are read, of tests too.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WORDS = {
    # Kafka, or the field, has a name for it.
    r"ailing": "failed replica, offline partition",
    r"play(?:s|ed|ing)? along": "disk error, log directory failure",
    r"farewells?|t(?:akes?|ook|aking) leave": "session close, last response",
    r"condemn(?:s|ed)?": "schedule for deletion",
    r"bur(?:y|ies|ied)": "append tombstones",
    r"(?:open|wrong|same) door": "a bound listening socket; on a listener that is not inter-broker",
    # `seat-1` is an instance id in records that Kafka has written (tests/golden).
    r"seats?(?!-1\b)|occupants?": "static member",
    r"settl(?:e|es|ed|ing)": "end the event; become stable, in sync, durable",
    r"storytell(?:er|ing)": "StoryReader, replay_history",
    r"(?:tells?|told|telling)(?! apart)": "notify, send, report, show, return",
    r"traps?|planted": "seeded bug (mutation test)",
    r"wish|wishes|patience": "pending change; timeout, retry deadline",
    # The sentence does not say who acts.
    r"nobody": "no replica, no member, no client: name the subject",
    r"whoever": "the caller, the client, the broker: name the subject",
    r"becomes? of|comes? of it": "the result, the outcome",
    r"so many of them": "the number",
    # Plain English has a shorter word.
    r"anew": "again",
    r"meanwhile": "then, during it; name what happens at the same time",
}
TABLE_HEADS = {"control": "baseline", "reach": "target"}

# Rooms that still have such words. None is added.
EXCEPTIONS: tuple[str, ...] = ()

_LISTED = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TEXTS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))


def findings_in(path: str, text: str) -> Iterator[str]:
    pieces = _pieces_of_code(text) if path.endswith(".py") else enumerate(text.splitlines(), start=1)
    for first, piece in [(0, " ".join(_PARTS.findall(path))), *pieces]:
        for match in _LISTED.finditer(piece):
            say = next(say for word, say in WORDS.items() if re.match(rf"(?:{word})\b", match[0], re.IGNORECASE))
            line = first + piece.count("\n", 0, match.start())
            yield f"{path}:{line}: {match[0]!r}; say: {say}"
        if piece.startswith("|"):
            for head in (cell.strip() for cell in piece.split("|")):
                if head in TABLE_HEADS:
                    yield f"{path}:{first}: column {head!r}; say: {TABLE_HEADS[head]}"


def _pieces_of_code(text: str) -> Iterator[tuple[int, str]]:
    """Identifiers, as words, and all texts and comments, each with the line on which it begins. Of most files none need
    be cut out: no listed word is in them as they stand, nor with their identifiers as words."""
    if not _LISTED.search(text) and not _LISTED.search(" ".join(_PARTS.findall(text))):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], " ".join(_PARTS.findall(token.string))
        elif token.type in _TEXTS:
            yield token.start[0], token.string


def _files() -> Iterator[Path]:
    for name in ("*.md", "*.toml", "*.yaml", "Makefile", "Dockerfile"):
        yield from sorted(ROOT.glob(name))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    for folder in ("ottla", "benchmarks", "examples", "tests"):
        yield from sorted(each for each in (ROOT / folder).rglob("*.py") if each != Path(__file__))


@cache
def _all_findings() -> list[str]:
    return [
        finding
        for path in _files()
        for finding in findings_in(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]


def test_no_listed_word_stands_outside_the_excepted_rooms() -> None:
    found = [finding for finding in _all_findings() if not finding.startswith(EXCEPTIONS)]

    assert not found, "\n".join(found)


def test_every_excepted_room_still_needs_its_exception() -> None:
    found = _all_findings()

    clean = [room for room in EXCEPTIONS if not any(finding.startswith(room) for finding in found)]
    assert not clean, f"remove {clean} from EXCEPTIONS"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "ailing_replicas = 1"),
        ("a.py", "class AilingReplicas: pass"),
        ("a.py", "log.info('nobody is in sync')"),
        ("a.py", 'option("name", f"{1} whoever asks")'),
        ("a.py", '"""One line,\nand nobody."""'),
        ("a.py", "x = 1  # nobody"),
        ("traps.py", ""),
        ("a.md", "The table is written anew."),
        ("a.md", "| name | reach | unit |"),
    ],
)
def test_a_listed_word_is_found(path: str, text: str) -> None:
    assert len(list(findings_in(path, text))) == 1


def test_a_finding_names_the_line_of_its_word() -> None:
    assert [each.split(":")[1] for each in findings_in("a.py", 'x = 1\n"""One,\nnobody."""')] == ["3"]


@pytest.mark.parametrize(
    ("path", "text"), [("a.py", "allows_trailing_bytes = 1  # tell apart"), ("a.md", "seated, reach | control")]
)
def test_other_words_are_not_found(path: str, text: str) -> None:
    assert list(findings_in(path, text)) == []
