"""The file of a seed: JSON, JSON lines, TOML, and YAML where the package is installed."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ottla.testing.seeds.seed_schema import LINE, SEED, SeedError, check

WHOLE: Final = (".json", ".toml", ".yaml", ".yml")
"""Of files that are one value."""
LINES: Final = ".jsonl"


def read_seed(path: Path) -> Mapping[str, Any]:
    """What the file says, in the form of `SEED`. Raises SeedError and OSError."""
    try:
        if path.suffix == LINES:
            return _of_lines(_text_of(path))
        return checked(parse_file(path, others=(LINES,)))
    except SeedError as error:
        raise SeedError(f"{path.name}: {error}") from None


def parse_file(path: Path, *, others: Sequence[str] = ()) -> Any:
    """What a file of JSON, TOML or YAML has. `others`: what names may end in beside those, for its refusal. Raises
    SeedError, without the file's name, and OSError."""
    if path.suffix not in WHOLE:
        raise SeedError(f"expected a name that ends in {', '.join(sorted([*WHOLE, *others]))}")
    return _parse(path, _text_of(path))


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise SeedError("it is not UTF-8 text") from None


def checked(seed: Any) -> Mapping[str, Any]:
    """Raises SeedError."""
    check(seed, SEED, "")
    return cast("Mapping[str, Any]", seed)


def _parse(path: Path, text: str) -> Any:
    try:
        match path.suffix:
            case ".json":
                return json.loads(text)
            case ".toml":
                return tomllib.loads(text)
            case _:
                return _parse_yaml(text)
    except ValueError as error:
        raise SeedError(f"not {path.suffix[1:].upper()}: {error}") from None


def _parse_yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise SeedError("YAML needs a package: pip install 'ottla[yaml]'; JSON and TOML need nothing") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SeedError(f"not YAML: {error}") from None


def _of_lines(text: str) -> Mapping[str, Any]:
    topics: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise SeedError(f"line {number}: not JSON: {error}") from None
        check(record, LINE, f"line {number}")
        records = topics.setdefault(record.pop("topic"), {"records": []})["records"]
        records.append(record)
    return {"topics": topics}
