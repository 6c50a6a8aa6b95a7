"""Finds what the repository cites: rules (`§14.6.1`), scenarios (`G08`, `TX13`, `SEC05`), invariants (`I-3`), seeded
bugs (`T-21`, `TT-5`, `KT-5`) and decisions.

A rule without the name of a document is one of `docs/semantics`. Any other document that numbers its sections is named
by its path in front of the number. Names of tests cite too: `test_g03_t27_…` is about G03 and T-27, `test_t01_…` about
scenario T01.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
FOLDERS = ("ottla", "tests", "docs", "benchmarks", "examples", ".ci")
SUFFIXES = {".py", ".md", ".sh", ".toml", ".yaml", ".yml", ".mjs", ".js", ".go", ".java", ".xml", ".html"}
NOT_READ = {"node_modules", "__pycache__", ".venv"}
# Has wrong references on purpose.
THIS_TEST = ROOT / "tests/docs/test_references.py"

# Together one series of rule numbers, which a reference without a document's name means.
RULES = ("docs/semantics", "docs/invariants", "docs/seeded-bugs")

_NUMBER = r"\d+(?:\.\d+)*"
_RULE = re.compile(
    rf"(?:(?P<document>docs/[\w./-]+|[A-Z][A-Z_]{{5,}}(?:\.md)?) )?§(?P<first>{_NUMBER})"
    rf"(?:[-–](?P<last>{_NUMBER})|(?: ?\(?(?P<row>[a-m])\b(?:-(?P<last_row>[a-m])\b)?))?"
)
_ID = re.compile(r"(?<![\w-])(?:(?:[IT]|[TK]T)-\d+|[A-Z]-\d\d|(?:[FGRTW]|TX|TK|SEC)\d\d)(?!\w)")
_TEST_NAME = re.compile(r"\bdef test_((?:(?:[fgrw]\d\d|t[xk]\d\d|sec\d\d|[it]\d\d?)_)+)")
_DECISION = re.compile(r"\bdecisions?[ /](\d{4})\b|\((0\d{3})\)")
_DOCUMENT = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|svg)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


@dataclass(frozen=True)
class Reference:
    where: str
    """File and line."""
    text: str
    anchor: str
    document: str | None = None
    """The document that is named, or the one that the reference stands in."""
    optional: bool = False
    """A letter after a rule is a row of its table if the table has lettered rows, else the next word."""


Anchors = Mapping[str, Iterable[str]]
"""By document, as `docs/semantics/wire.md`."""


def references_in(path: str, text: str) -> Iterator[Reference]:
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}:{number}"
        yield from _rules_in(line, where)
        for match in _ID.finditer(line):
            yield Reference(where, match[0], match[0])
        for match in _TEST_NAME.finditer(line):
            for short in match[1].rstrip("_").split("_"):
                yield Reference(where, short, _spelled_out(short))
        for match in _DECISION.finditer(line):
            if match[1] or path.startswith("docs/decisions/"):
                yield Reference(where, match[0], f"decision {match[1] or match[2]}")
        for match in _DOCUMENT.finditer(line):
            yield Reference(where, match[0], match[0])


def _rules_in(line: str, where: str) -> Iterator[Reference]:
    for match in _RULE.finditer(line):
        first, last, row, document = match["first"], match["last"], match["row"], match["document"]
        for anchor in (first, last):
            if anchor:
                yield Reference(where, match[0], anchor, document)
        for letter in (row, match["last_row"]):
            if letter:
                yield Reference(where, match[0], first + letter, document, optional=True)


def _spelled_out(short: str) -> str:
    """The id in a test's name: g03 is G03, t01 the scenario T01, t1 the seeded bug T-1."""
    letter, number = short[0].upper(), short[1:]
    if short.startswith(("tx", "tk", "sec")):
        return short.upper()
    if letter == "I" or (letter == "T" and not number.startswith("0")):
        return f"{letter}-{number}"
    return letter + number


def unresolved(references: Iterable[Reference], anchors: Anchors, known: Iterable[str]) -> list[str]:
    """One line for each reference that nothing resolves. `known`: decisions and files that may be cited."""
    series = {document: set(found) for document, found in anchors.items()}
    ids = {anchor for found in series.values() for anchor in found if not anchor[0].isdigit()} | set(known)
    complaints = []
    for reference in references:
        if reference.anchor[0].isdigit():
            complaint = _complaint_about_rule(reference, series)
        else:
            complaint = None if reference.anchor in ids else "no document of the repository defines it"
        if complaint:
            complaints.append(f"{reference.where}: {reference.text}: {complaint}")
    return complaints


def _complaint_about_rule(reference: Reference, anchors: Mapping[str, set[str]]) -> str | None:
    own = str(PurePosixPath(reference.where.rpartition(":")[0]))
    named = [reference.document] if reference.document else RULES
    documents = [document for document in anchors if any(_belongs(document, name) for name in named)]
    if not documents:
        return f"there is no document {reference.document} with numbered rules"
    if reference.document is None and own in anchors:
        documents.append(own)
    found = set().union(*(anchors[document] for document in documents))
    if reference.optional and not any(anchor[:-1] == reference.anchor[:-1] for anchor in found if anchor[-1].isalpha()):
        return None
    return None if reference.anchor in found else f"no rule {reference.anchor} in {', '.join(named)}"


def _belongs(document: str, name: str) -> bool:
    return document.removesuffix(".md") == name.removesuffix(".md") or document.startswith(f"{name}/")


def anchors_in(text: str) -> list[str]:
    return _ANCHOR.findall(text)


def all_anchors() -> dict[str, list[str]]:
    documents = {str(path.relative_to(ROOT)): anchors_in(path.read_text()) for path in ROOT.glob("docs/**/*.md")}
    return {document: anchors for document, anchors in documents.items() if anchors}


def citable() -> set[str]:
    decisions = {f"decision {path.name[:4]}" for path in ROOT.glob("docs/decisions/[0-9]*.md")}
    return decisions | {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*") if path.is_file()}


def texts() -> Iterator[tuple[str, str]]:
    """Path and content of everything that may cite."""
    paths = [path for path in ROOT.iterdir() if path.is_file()]
    paths += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted(paths):
        readable = path.suffix in SUFFIXES or path.name in ("Makefile", "Dockerfile")
        if readable and path != THIS_TEST and NOT_READ.isdisjoint(path.parts) and path.is_file():
            yield str(path.relative_to(ROOT)), path.read_text()
