import threading
from pathlib import Path

import pytest

from tests.histories.events import EVENTS, Acknowledged, Sent
from tests.histories.files import HistoryFile, from_json, now_us, read_histories, to_json
from tests.histories.perfect import PerfectCluster


def test_every_event_survives_the_file(tmp_path: Path) -> None:
    events = PerfectCluster(3).run(400).events
    path = tmp_path / "history.jsonl"

    with HistoryFile(path) as history:
        for event in events:
            history.write(event)

    assert list(read_histories([path])) == events
    assert len({type(event) for event in events}) >= len(EVENTS) - 2, "all but the refusals"


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(to_json(Acknowledged(1, "a", 0)) + "\n" + to_json(Acknowledged(2, "b", 1))[:20])

    assert list(read_histories([path])) == [Acknowledged(1, "a", 0)]


@pytest.mark.parametrize("line", ["{}", "[]", '{"event":"Sent"}', '{"event":"Nothing"}', "{"])
def test_what_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        from_json(line)


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryFile(path) as history:

        def write(name: str) -> None:
            for number in range(300):
                history.write(Sent(now_us(), name, "t", 0, number, f"{name}/{number}"))

        threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len({event for event in read_histories([path]) if isinstance(event, Sent)}) == 900
