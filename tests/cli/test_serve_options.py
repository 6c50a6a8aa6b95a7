import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.app import cli
from ottla.cli.commands.serve import serve_command
from ottla.cli.serve_options import OPTIONS, defaults, parse_plain
from tests.cli.runner import run

WORDS = [option.name for option in OPTIONS] + [
    "--listen=0.0.0.0:1",
    "--ephemeral=1",
    "--log-level=debug",
    "--set=a=b",
    "--node-id=",
    "--metadata=etcd://a:1",
    "--secure=",
    "etcd://a:1,b:2",
    "3",
    "a:65535",
    "127.0.0.1:0",
    "[::1]:9092",
    "::1:9092",
    "a:65536",
    "k=v",
    "=v",
    "json",
    "1",
    "-1",
    "²",
    "--",
    "-h",
    "--liste",
    "",
]


def as_click_reads(arguments: list[str]) -> dict[str, object]:
    # As below `ottla`: click keeps the help option that the first context asks for.
    context = serve_command.make_context("serve", list(arguments), **cli.context_settings)
    return dict(context.params)


def test_nothing_given_is_the_documented_defaults() -> None:
    assert parse_plain([]) == defaults()
    assert defaults() == {
        "listen": None,
        "advertise": None,
        "data_dir": "./ottla-data",
        "ephemeral": False,
        "brokers": 1,
        "node_id": None,
        "metadata": None,
        "admin": None,
        "secure": None,
        "config": None,
        "settings": (),
        "kafka_env": False,
        "testing": False,
        "control": None,
        "control_file": None,
        "control_open": False,
        "control_host": (),
        "testing_remote": False,
        "capture": None,
        "capture_secrets": False,
        "log_format": None,
        "log_level": "info",
    }


def test_everything_given() -> None:
    line = (
        "--listen 0.0.0.0:0 --advertise=host:9 --ephemeral --brokers 1 --node-id 7 --config f "
        "--metadata etcd://a:1,[::1]:2 --admin [::1]:9644 --set a=b --set c=d=e --log-format json --log-level debug"
    )
    assert parse_plain(line.split()) == {
        "listen": "0.0.0.0:0",
        "advertise": "host:9",
        "data_dir": "./ottla-data",
        "ephemeral": True,
        "brokers": 1,
        "node_id": 7,
        "metadata": "etcd://a:1,[::1]:2",
        "admin": "[::1]:9644",
        "secure": None,
        "config": "f",
        "settings": ("a=b", "c=d=e"),
        "kafka_env": False,
        "testing": False,
        "control": None,
        "control_file": None,
        "control_open": False,
        "control_host": (),
        "testing_remote": False,
        "capture": None,
        "capture_secrets": False,
        "log_format": "json",
        "log_level": "debug",
    }


def test_testing_and_its_control() -> None:
    line = (
        "--testing --control unix:c --control-file f --control-open --control-host a --control-host=b --testing-remote"
    )

    assert parse_plain(line.split()) == defaults() | {
        "testing": True,
        "control": "unix:c",
        "control_file": "f",
        "control_open": True,
        "control_host": ("a", "b"),
        "testing_remote": True,
    }


def test_capture_names_a_file() -> None:
    given = parse_plain(["--capture", "a.owire", "--capture-secrets"])

    assert given == defaults() | {"capture": "a.owire", "capture_secrets": True}


def test_secure_names_a_directory() -> None:
    assert parse_plain(["--secure", "dev", "--ephemeral"]) == defaults() | {"secure": "dev", "ephemeral": True}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=5))
def test_plain_parser_agrees_with_click_or_leaves_it_to_click(arguments: list[str]) -> None:
    plain = parse_plain(arguments)

    assert plain is None or plain == as_click_reads(arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--listen", "9092"), "'9092' is not HOST:PORT with a port up to 65535"),
        (("--listen", "::1:9092"), "'::1:9092' is not HOST:PORT with a port up to 65535"),
        (("--listen", "a:65536"), "'a:65536' is not HOST:PORT with a port up to 65535"),
        (("--advertise", "a:0"), "'a:0' is not HOST:PORT with a port up to 65535"),
        (("--listen", "a:65534", "--brokers", "3"), "a:65534 and the 2 ports that follow it are not all below 65536"),
        (("--advertise", "0.0.0.0:9092"), "0.0.0.0:9092 is not an address that clients can connect to"),
        (("--advertise", "[::]:9092"), "[::]:9092 is not an address that clients can connect to"),
        (("--node-id", "2147483648"), "ids of brokers are at most 2147483647"),
        (("--node-id", "2147483647", "--brokers", "2"), "ids of brokers are at most 2147483647"),
        (("--node-id", "9" * 5000), "is not a valid integer range"),
        (("--capture=",), "it names no file"),
        (("--data-dir", ""), "it names no directory"),
        (("--capture-secrets",), "there is no --capture"),
        (("--brokers", "0"), "a process runs at least one broker"),
        (
            ("--metadata", "localhost:2379"),
            "'localhost:2379' is not a metadata store: etcd://",
        ),
        (("--metadata", "etcd://a:1,b", "--node-id", "1"), "'b' is not HOST:PORT in etcd://a:1,b"),
        (("--metadata", "etcd://a:1"), "every broker of a cluster needs an id of its own"),
        (("--metadata", "etcd://a:1", "--node-id", "1", "--brokers", "2"), "with --metadata a process runs one broker"),
        (("--secure=",), "it names no directory"),
        (("--secure", "s", "--metadata", "etcd://a:1", "--node-id", "1"), "it is for the brokers of one process, and"),
        (("--ephemeral", "--data-dir", "d"), "--data-dir d names a directory, but --ephemeral uses a temporary one"),
        (("--control", "127.0.0.1:0"), "it needs --testing"),
        (("--testing", "--control-host", "kafka"), "it needs --control"),
        (("--testing", "--secure", "s"), "it cannot be combined with --secure"),
        (("--testing", "--metadata", "etcd://a:1", "--node-id", "1"), "it is for metadata of this process"),
        (("--set", "a"), "'a' is not KEY=VALUE"),
        (("--log-format", "xml"), "'xml' is not one of 'console', 'json'"),
        (("--node-id", "x"), "'x' is not a valid integer range"),
        (("--liste", "a:1"), "No such option '--liste'"),
        (("--listen",), "Option '--listen' requires an argument"),
        (("extra",), "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_status_2(arguments: tuple[str, ...], sentence: str) -> None:
    result = run("serve", *arguments)

    assert parse_plain(arguments) is None
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_plain_serve_imports_no_click_rich_or_client() -> None:
    program = (
        "import sys; from ottla.cli import main, serve_options; assert serve_options.parse_plain(['--ephemeral']);"
        "print(sorted({'click', 'rich', 'aiokafka', 'asyncio', 'json', 'importlib.metadata'} & set(sys.modules)))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout == "[]\n"
