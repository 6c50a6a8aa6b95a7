"""The generated pages are those of the present code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.config.definitions import SERVER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.server.apis import APIS
from ottla.cli.reference import (
    EVENTS,
    EVENTS_MARK,
    PAGES,
    apis_text,
    configuration_text,
    events_text,
    main,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("path", "text"), PAGES.items(), ids=[path.stem for path in PAGES])
def test_a_generated_page_is_current(path: Path, text: Callable[[], str]) -> None:
    assert (ROOT / path).read_text() == text(), "run `make docs`"


def test_the_page_of_events_is_current() -> None:
    page = (ROOT / EVENTS).read_text()
    assert page == events_text(page), "run `make docs`"


def test_what_is_written_by_hand_stays_in_the_page_of_events() -> None:
    assert events_text(f"By hand.\n{EVENTS_MARK}old").startswith(f"By hand.\n{EVENTS_MARK}\n## Every event")
    with pytest.raises(AssertionError, match="does not say where its generated part begins"):
        events_text("By hand.")


def test_the_pages_name_every_option_and_api() -> None:
    text = configuration_text()
    assert all(f"`{name}`" in text for name in [*SERVER_OPTIONS, *TOPIC_OPTIONS])
    assert all(f"| {api.name} |" in apis_text() for api in APIS.values())


def test_pages_are_written_below_the_given_directory(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / EVENTS).write_text(EVENTS_MARK)
    main(tmp_path)

    assert {path: (tmp_path / path).read_text() for path in PAGES} == {path: text() for path, text in PAGES.items()}
    assert (tmp_path / EVENTS).read_text() == events_text(EVENTS_MARK)
