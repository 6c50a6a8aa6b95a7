"""Java's login configuration."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.jaas import JaasEntry, JaasError, LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    return dict(parse_jaas(f"{PLAIN} required {text};").options)


def test_what_users_paste_is_understood() -> None:
    text = f"""{PLAIN} required
        username="admin"   // towards other brokers
        password='ad"min'  /* and its
                              password */
        user_alice = "a b";"""
    assert parse_jaas(text) == JaasEntry(
        LoginModule.PLAIN, {"username": "admin", "password": 'ad"min', "user_alice": "a b"}
    )


@pytest.mark.parametrize("module", LoginModule)
@pytest.mark.parametrize("flag", ["required", "Requisite", "SUFFICIENT", "optional"])
def test_modules_and_flags(module: LoginModule, flag: str) -> None:
    assert parse_jaas(f"{module.value} {flag};") == JaasEntry(module, {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\n\\t\\\\"', "a\n\t\\"),
        ('"\\101\\60"', "A0"),
        ('"\\q"', "q"),
        ("secret", "secret"),
        ("s3cr-e.t$", "s3cr-e.t$"),
        ("\u00fc1", "\u00fc1"),
        ('""', ""),
    ],
)
def test_values(text: str, value: str) -> None:
    assert options(f"password={text}") == {"password": value}


def test_the_last_of_equal_keys_counts() -> None:
    assert options('a=b "a"=c') == {"a": "c"}


def test_a_bare_slash_begins_a_comment() -> None:
    assert options("a=b / c=d\n e=f") == {"a": "b", "e": "f"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f"{PLAIN} required",
        f"{PLAIN} required a=b",
        f"{PLAIN} needed a=b;",
        f"{PLAIN} required a;",
        f"{PLAIN} required a=;",
        f"{PLAIN} required =a;",
        f"{PLAIN} required a=1b;",
        f"{PLAIN} required a=-b;",
        f"{PLAIN} required a='b;",
        f"{PLAIN} required a=b; {PLAIN} required;",
        f"{PLAIN} required a=b;;",
        f"{PLAIN} required a=b#c;",
        "com.sun.security.auth.module.JndiLoginModule required a=b;",
        "x" * 100_000,
    ],
)
def test_what_breaks_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(JaasError):
        parse_jaas(text)


@pytest.mark.parametrize(
    "text", ["user_a='hidden'", "a='hidden' b", "a='hidden';c=d", "a='hidden", "a=9hidden", 'a="hid"hidden=;']
)
def test_no_sentence_has_a_value(text: str) -> None:
    with pytest.raises(JaasError) as refused:
        parse_jaas(f"{PLAIN} required {text}")
    assert "hidden" not in str(refused.value)
    entry = parse_jaas(f"{PLAIN} required user_a=hidden;")
    assert "hidden" not in repr(entry)


def test_a_password_in_place_of_all_is_not_shown() -> None:
    with pytest.raises(JaasError) as refused:
        parse_jaas("hidden is my password;")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_string_that_is_cut_short_says_where_it_begins(quote: str) -> None:
    begun = f"{PLAIN} required user_a={quote}"
    with pytest.raises(JaasError, match=f"^the quote at character {len(begun)} of the login configuration is not"):
        parse_jaas(f"{begun}hidden;")


def test_characters_of_a_value_without_quotes() -> None:
    def is_read(value: str) -> bool:
        try:
            return options(f"key={value}") == {"key": value}
        except JaasError:
            return False

    characters = [chr(code) for code in (*range(0x180), 0x2028, 0xFFFF, 0x10FFFF)]
    begins = [each for each in characters if is_read(each)]
    goes_on = [each for each in characters if is_read(f"a{each}a")]

    beyond = [each for each in characters if each >= "\u00a0"]
    # Skipped between words, and part of a word that has begun.
    spaces = [each for each in beyond if each.isspace()]
    letters = sorted(f"$_{string.ascii_letters}")
    assert begins == [*letters, *(each for each in beyond if each not in spaces)]
    assert goes_on == [*sorted([*letters, *string.digits, ".", "-"]), *beyond]


@given(
    st.dictionaries(
        st.text(string.ascii_letters, min_size=1),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r")),
    )
)
def test_any_quoted_options_are_read_back(given_options: dict[str, str]) -> None:
    text = " ".join(
        f'{key}="{value.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'
        for key, value in given_options.items()
    )
    assert options(text) == given_options


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(text)
    except JaasError:
        return
    assert text
