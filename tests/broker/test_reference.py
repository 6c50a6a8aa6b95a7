"""What is generated for readers is what the broker runs."""

from pathlib import Path

from ottla.broker.config.definitions import SERVER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.reference import API_VERSIONS, CONFIGURATION, apis_text, configuration_text, main
from ottla.broker.server.apis import APIS

ROOT = Path(__file__).parents[2]


def test_the_configuration_reference_is_current() -> None:
    assert (ROOT / CONFIGURATION).read_text() == configuration_text(), "run `make docs`"


def test_the_table_of_apis_is_current() -> None:
    assert (ROOT / API_VERSIONS).read_text() == apis_text(), "run `make docs`"


def test_the_reference_names_every_option_and_api() -> None:
    text = configuration_text()
    assert all(f"`{name}`" in text for name in [*SERVER_OPTIONS, *TOPIC_OPTIONS])
    assert all(f"| {api.name} |" in apis_text() for api in APIS.values())


def test_both_documents_are_written_below_the_given_directory(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    main(tmp_path)

    assert (tmp_path / CONFIGURATION).read_text() == configuration_text()
    assert (tmp_path / API_VERSIONS).read_text() == apis_text()
