"""What the commands of `ottla control` have in common: where they ask, and how they print."""

import functools
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ottla.cli.failures import ClientError
from ottla.cli.operations.control import ControlAddress, ControlRefused
from ottla.cli.output import Output


class ControlSession:
    """What a command asks, and how it prints."""

    def __init__(self, url: str | None, file: Path | None, *, as_json: bool) -> None:
        self.output = Output(as_json)
        self._url, self._file = url, file

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ends the process with a sentence where it is refused."""
        with self._ended_by_errors():
            return ControlAddress.found(self._url, self._file).ask(method, path, body)

    def fetch(self, path: str, file: Path) -> int:
        """What is answered, into a file for its owner alone; gives its bytes. Ends the process where it is refused."""
        with self._ended_by_errors():
            return ControlAddress.found(self._url, self._file).fetch(path, file)

    @contextmanager
    def _ended_by_errors(self) -> Generator[None]:
        try:
            yield
        except ClientError as error:
            if self.output.as_json and isinstance(error, ControlRefused):
                self.output.json(dict(error.document))
            else:
                click.echo(f"ottla: {error}", err=True)
            sys.exit(1)

    def say(self, answer: Any, sentence: str) -> None:
        """For people the sentence, for scripts the answer."""
        if self.output.as_json:
            self.output.json(answer)
        else:
            self.output.say(sentence)

    def show(self, answer: Any, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if self.output.as_json:
            self.output.json(answer)
        else:
            self.output.table(columns, rows)


def control_options(function: Callable[..., None]) -> Callable[..., None]:
    @click.option("--url", metavar="URL", help="http://HOST:PORT or unix:PATH; else OTTLA_CONTROL_URL.")
    @click.option("--file", metavar="FILE", type=click.Path(path_type=Path),
                  help="Of `ottla serve --control-file`; else OTTLA_CONTROL_TOKEN has the token.")  # fmt: skip
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(function)
    def command(url: str | None, file: Path | None, as_json: bool, **values: Any) -> None:
        function(ControlSession(url, file, as_json=as_json), **values)

    return command
