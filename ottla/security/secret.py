"""A text that is never shown: a password, or a setting that has one."""


class Secret:
    """`str`, `repr` and formatting hide it; `reveal` is the only way to it, so that a search finds who uses it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
