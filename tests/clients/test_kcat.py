"""kcat, the command-line client made of librdkafka, where it is installed."""

import shutil
import subprocess

import pytest

from tests.served import ServedBroker

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def kcat(broker: ServedBroker, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", broker.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_kcat_produces_it_consumes(broker: ServedBroker) -> None:
    kcat(broker, "-P", "-t", "words", "-K:", stdin="a:1\nb:2\nc:3\n")

    consumed = kcat(broker, "-C", "-t", "words", "-o", "beginning", "-e", "-q", "-f", "%o %k=%s\n")

    assert consumed.splitlines() == ["0 a=1", "1 b=2", "2 c=3"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_makes_the_round_trip(broker: ServedBroker, codec: str) -> None:
    lines = [f"{codec} line {i} " + "x" * 100 for i in range(50)]
    kcat(broker, "-P", "-t", codec, "-z", codec, stdin="\n".join(lines))

    assert kcat(broker, "-C", "-t", codec, "-o", "beginning", "-e", "-q").splitlines() == lines


def test_metadata_lists_the_broker_and_its_topics(broker: ServedBroker) -> None:
    kcat(broker, "-P", "-t", "listed", stdin="x\n")

    listing = kcat(broker, "-L")

    assert f"at {broker.bootstrap} (controller)" in listing
    assert 'topic "listed" with 1 partitions' in listing


def test_a_group_of_kcat_goes_on_where_it_stopped(broker: ServedBroker) -> None:
    """G27: the offset that the first run committed is where the second begins."""
    kcat(broker, "-P", "-t", "lines", stdin="1\n2\n3\n")
    group = ("-G", "readers", "-q", "-X", "auto.offset.reset=earliest", "-e", "lines")
    assert kcat(broker, *group).splitlines() == ["1", "2", "3"]

    kcat(broker, "-P", "-t", "lines", stdin="4\n")

    assert kcat(broker, *group).splitlines() == ["4"]
