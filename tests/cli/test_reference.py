from ottla.cli.reference import DOCUMENT, document


def test_the_documented_command_line_is_the_one_there_is() -> None:
    assert DOCUMENT.read_text() == document(), "run `python -m ottla.cli.reference`"
