"""Links and tables of Markdown documents, and the files and tests they name."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.references import ROOT, anchors_in

FOLDERS = ("docs", "examples", "distributions")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]*`")
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_FENCED_FILE = re.compile(r"(?<![\w/.-])(?:[a-z_]+/)+[a-z_]+\.py\b")
_FILE = re.compile(r"`((?:ottla|tests|benchmarks|examples)/[\w./-]+\.\w+)`")
_MAKE = re.compile(r"(?:^|`)make ([a-z-]+)", re.MULTILINE)
_TEST = re.compile(r"`(test_\w+)`")
_TABLE = re.compile(r"^\|.*\n(?:\|.*\n?)+", re.MULTILINE)
_BAR = re.compile(r"(?<!\\)\|")


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in ROOT.glob(f"{folder}/**/*.md"))]


def broken_links(document: Path) -> Iterator[str]:
    for target in _LINK.findall(_CODE.sub("", document.read_text())):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        if not path.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in _targets(path.read_text()):
            yield f"{target}: no such place in it"


def uneven_rows(document: Path) -> Iterator[str]:
    """Rows that have not as many cells as the heading of their table."""
    for table in _TABLE.findall(_FENCE.sub("", document.read_text())):
        heading, *rows = table.splitlines()
        yield from (row for row in rows if len(_BAR.findall(row)) != len(_BAR.findall(heading)))


def missing_files(document: Path) -> Iterator[str]:
    for name in _FILE.findall(document.read_text()):
        stands_for_any = Path(name).stem.isupper()
        if not stands_for_any and not (ROOT / name).exists():
            yield name
    for name in _files_of_diagrams(document.read_text()):
        if not (ROOT / name).exists() and not (ROOT / "ottla" / name).exists():
            yield name


def _files_of_diagrams(text: str) -> Iterator[str]:
    """In blocks without a language, and between backticks: files of the package may be named without `ottla/`."""
    for language, block in _FENCED.findall(text):
        if not language:
            yield from _FENCED_FILE.findall(block)
    for code in _INLINE.findall(_FENCE.sub("", text)):
        yield from _FENCED_FILE.findall(code)


def named_tests(document: Path) -> set[str]:
    return set(_TEST.findall(document.read_text()))


def make_targets_named_in(document: Path) -> set[str]:
    """As commands, in blocks of code or between backticks; a line of prose may begin with "make" too."""
    return {target for code in _CODE.findall(document.read_text()) for target in _MAKE.findall(code)}


def _targets(text: str) -> set[str]:
    """What a link may lead to: explicit anchors, and headings in the form that renderers of Markdown give them."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {*anchors_in(text), *(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)}
