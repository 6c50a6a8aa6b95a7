"""The report of what simulations never enter: what it counts, and how its list of excuses is checked."""

import ast
import sys

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.simulation import reach
from tests.simulation.reach import (
    EXCUSES,
    ROOMS,
    Excuses,
    Reached,
    _collect_codes,
    answerable_codes,
    defined_functions,
    functions_in,
    recorded_code,
    run_seed,
)

# Reading all rooms takes seconds.
ROOMS_REPORTED = ("broker/metadata", "broker/upkeep")

SOURCE = '''
class A:
    def does(self):
        def inner():
            return 1
        return inner

    def declared(self):
        """Nothing."""
        ...

if True:
    async def waits():
        await 1
'''


def test_functions_with_a_body_are_listed_by_qualified_name():
    assert list(functions_in(ast.parse(SOURCE))) == ["A.does", "A.does.<locals>.inner", "waits"]


def test_code_that_begins_is_recorded_until_the_end():
    def entered():
        pass

    def entered_later():
        pass

    seen = set()
    before = sys.gettrace()
    with recorded_code(seen.add):
        entered()
    entered_later()

    assert entered.__code__ in seen
    assert entered_later.__code__ not in seen
    assert sys.gettrace() is before


def test_codes_of_nested_structures_are_collected():
    topics = [MetadataResponseTopic(error_code=3, name="a"), MetadataResponseTopic(error_code=5, name="b")]
    codes = set()
    _collect_codes(MetadataResponse(topics=topics), codes)
    assert {3, 5} <= codes


def test_codes_that_the_broker_answers_are_known():
    assert {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE} <= answerable_codes()
    assert ErrorCode.SHARE_SESSION_NOT_FOUND not in answerable_codes()


def test_an_excuse_needs_a_reason():
    with pytest.raises(ValueError, match="no reason"):
        Excuses.parse("ottla.storage.log:Log.roll")


def test_excused_functions_must_exist_and_stay_unentered():
    excuses = Excuses.parse("m:A.* -- why\nm:gone -- why")
    assert excuses.mistakes(["m:A.x", "m:A.y", "m:b"], {"m:A.x", "m:b"}) == [
        "m:A.x: is listed and was entered",
        "m:gone: there is no such function",
    ]


def test_a_seed_reaches_functions_and_no_excused_one():
    reached = run_seed("cluster", 6)
    defined = [name for room in ROOMS for name in defined_functions(room)]
    assert len(reached.functions & set(defined)) > 500
    assert ErrorCode.NONE in reached.codes
    assert Excuses.parse(EXCUSES.read_text()).mistakes(defined, reached.functions) == []


def report(monkeypatch, functions, *arguments):
    """The exit status when all seeds together have entered these functions."""
    monkeypatch.setattr(reach, "_results", lambda *_: [Reached(functions=set(functions))])
    monkeypatch.setattr(reach, "ROOMS", ROOMS_REPORTED)
    monkeypatch.setattr(reach, "_report_codes", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["reach", *arguments])
    return reach.main()


def test_a_share_below_the_expected_one_fails(monkeypatch, capsys):
    excuses = Excuses.parse(EXCUSES.read_text())
    counted = [name for room in ROOMS_REPORTED for name in defined_functions(room) if not excuses.excuse(name)]
    enough = -(-95 * len(counted) // 100)
    monkeypatch.setattr(excuses, "mistakes", lambda *_: [])
    monkeypatch.setattr(Excuses, "parse", lambda _: excuses)

    assert report(monkeypatch, counted[:enough], "--at-least", "95") == 0
    assert report(monkeypatch, counted[: enough - 1], "--at-least", "95") == 1
    assert "expected are 95.0 %" in capsys.readouterr().out


def test_an_excused_function_that_was_entered_fails(monkeypatch, capsys):
    defined = [name for room in ROOMS_REPORTED for name in defined_functions(room)]

    assert report(monkeypatch, defined) == 1
    assert "BrokerLifecycle.failed: is listed and was entered" in capsys.readouterr().out
