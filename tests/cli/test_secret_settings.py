"""Secrets among the settings of `ottla serve`: from a file, or with a warning (§68.4, §68.5)."""

from pathlib import Path

import pytest

from ottla.broker.config.options import ConfigError
from ottla.cli.operations.serve import ServeOptions, _server_config
from ottla.security.client import Secret
from tests.cli.runner import run

NAME = "listener.name.ext.plain.sasl.jaas.config"
TEXT = "Module required;"


def parsed(*settings: str) -> object:
    return _server_config(ServeOptions(settings=settings)).listener_value("EXT", "PLAIN", "sasl.jaas.config")


def test_secret_comes_from_the_file_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jaas"
    path.write_text(f"{TEXT}\n")
    path.chmod(0o600)

    assert parsed(f"{NAME}=@{path}") == Secret(TEXT)
    assert parsed(f"{NAME} = {TEXT}") == Secret(TEXT)


def test_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jaas"
    path.write_text(TEXT)
    path.chmod(0o644)

    with pytest.raises(ConfigError, match=f"^{NAME}: {path} can be read by others than its owner"):
        parsed(f"{NAME}=@{path}")


def test_only_secrets_come_from_files() -> None:
    config = _server_config(ServeOptions(settings=("broker.rack=@home",)))
    assert config.broker_rack == "@home"


def test_refusal_on_the_command_line_shows_no_secret() -> None:
    result = run("serve", "--ephemeral", "--set", f"{NAME}=hidden")
    assert result.exit_code == 1
    assert result.stderr.endswith(f"ottla: {NAME}: there is no listener EXT, only PLAINTEXT\n")
    assert "a secret stands in the arguments" in result.stderr
    assert "hidden" not in result.stderr
