"""Rules that make names of subjects: split, matched and replaced as Kafka's SslPrincipalMapper does."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.security.principal_mapping import SUBJECT_BYTES_MAX, NoMatchingRule, PrincipalMapper

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        # Those of Kafka's SslPrincipalMapperTest.
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?), OU=(.*?), O=(.*?)$/$1@$2/L", "CN=Adam, OU=Admin, O=Org", "adam@admin"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", "O=x,cn=kafka.broker,OU=y", "KAFKA.BROKER"),
        ("DEFAULT", DUKE, DUKE),
        ("", None, None),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", DUKE, "Duke"),
        ("RULE:^CN=another$/x/,\n RULE:^OU=.*$/y/L , DEFAULT", DUKE, DUKE),
        (", RULE:^CN=(.*?),.*$/$1/ ,,", DUKE, "Duke"),
        # Slashes and backslashes.
        (r"RULE:cn=(.+),ou=(\/.+)\/admin/$1$2/", "cn=a,ou=/b/admin", "a/b"),
        (r"RULE:^CN=(.*?)\\,(.*)$/$2 $1/", "CN=a\\,b", "b a"),
        (r"RULE:^CN=(.*)$/a\/b\\c\$1/", "CN=x", r"a/b\c$1"),
        # Groups: by number, by name, and of a number that there is none of.
        (r"RULE:^(?<who>[^,]+),(.*)$/${who}/U", "cn=x,o=y", "CN=X"),
        (r"RULE:^CN=(a)?(.*)$/$1$2/", "CN=xyz", "xyz"),
        (r"RULE:^CN=(.*)$/$12/", "CN=x", "x2"),
        (r"RULE:^CN=(.*)$/$1@$4/", "CN=x", "x@$4"),
        (r"RULE:^CN=(.*)$/$0/", "CN=x", "CN=x"),
        # Every match is replaced, and `.*` matches the empty end once more.
        (r"RULE:.*/x/", "CN=a", "xx"),
        (r"RULE:[a-z]+/x/", "abc", "x"),
    ],
)
def test_name_by_the_first_rule_that_matches(rules: str, subject: str | None, name: str | None) -> None:
    mapper = PrincipalMapper(rules)
    if subject is None:
        with pytest.raises(NoMatchingRule):
            mapper.name_of(DUKE)
    else:
        assert mapper.name_of(subject) == name


@pytest.mark.parametrize(
    "rules",
    ["default", "DEFAUL", "DEFAULT/L", "DEFAULTS", "RULE:CN=(.*?),OU=ServiceUsers.*/$1", "rule:^CN=(.*?)$/$1/L",
     "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U", "RULE:^CN=(.*?)$/L", "RULE:^CN=(.*?)$/$1/LU", "RULE:(/x/",
     "RULE:^CN=.*$/$1/", "RULE:^CN=(.*)$/$/", "RULE:^CN=(.*)$/${who}/", "RULE:^CN=(.*)$/$x/"],
)  # fmt: skip
def test_rules_that_cannot_be(rules: str) -> None:
    with pytest.raises(ValueError):
        PrincipalMapper(rules)


def test_subject_that_no_rule_matches() -> None:
    mapper = PrincipalMapper("RULE:^OU=(.*)$/$1/")
    with pytest.raises(NoMatchingRule, match=f"no rule of ssl.principal.mapping.rules matches {DUKE}"):
        mapper.name_of(DUKE)
    with pytest.raises(NoMatchingRule, match="more than 4096 bytes"):
        PrincipalMapper().name_of("é" * (SUBJECT_BYTES_MAX // 2 + 1))


PATTERNS = st.text("ab(),|*+?[]{}$^.\\/ <>:=!1", max_size=12)


@given(PATTERNS, PATTERNS, st.sampled_from(["", "L", "U"]), st.text("aAbB,=/\\$ ", max_size=12))
@example("(a)", "$1", "U", "a")
def test_any_rule_is_refused_or_gives_a_name(pattern: str, replacement: str, letters: str, subject: str) -> None:
    """Nothing else is ever raised, when rules are read and when a client comes."""
    try:
        mapper = PrincipalMapper(f"RULE:{pattern}/{replacement}/{letters}")
    except ValueError:
        return
    with contextlib.suppress(NoMatchingRule):
        assert isinstance(mapper.name_of(subject), str)


WORDS = st.text("abcXYZ019 -_", min_size=1, max_size=8)


@given(st.lists(st.tuples(st.sampled_from(["CN", "OU", "O"]), WORDS), min_size=1, max_size=5), st.data())
def test_a_part_of_a_subject_is_picked(parts: list[tuple[str, str]], data: st.DataObject) -> None:
    """By a rule that counts the parts before it, as an administrator would write it."""
    subject = ",".join(f"{key}={value}" for key, value in parts)
    index = data.draw(st.integers(0, len(parts) - 1))
    before = "".join(rf"{key}=[^,]*," for key, _ in parts[:index])
    key, value = parts[index]
    rule = rf"RULE:^{before}{key}=([^,]*)(,.*)?$/$1/"
    assert PrincipalMapper(f"{rule},DEFAULT").name_of(subject) == value
    assert PrincipalMapper(f"{rule}L").name_of(subject) == value.lower()
