"""What is generated for readers is what the broker runs."""

from pathlib import Path

from ottla.broker.config.definitions import SERVER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.reference import CONFIGURATION, README, api_table, configuration_text, main, readme_text
from ottla.broker.server.apis import APIS

ROOT = Path(__file__).parents[2]


def test_the_configuration_reference_is_current() -> None:
    assert (ROOT / CONFIGURATION).read_text() == configuration_text(), "run `make docs`"


def test_the_readmes_table_of_apis_is_current() -> None:
    text = (ROOT / README).read_text()
    assert text == readme_text(text), "run `make docs`"


def test_the_reference_names_every_option_and_api() -> None:
    text = configuration_text()
    assert all(f"`{name}`" in text for name in [*SERVER_OPTIONS, *TOPIC_OPTIONS])
    assert all(api.name in api_table() for api in APIS.values())


def test_a_readme_without_markers_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / README).write_text("hello")
    main(tmp_path)

    assert (tmp_path / README).read_text() == "hello"
    assert (tmp_path / CONFIGURATION).read_text() == configuration_text()
