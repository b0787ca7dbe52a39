"""A document is read with the location of every value, and plain words have their JSON meaning."""

from __future__ import annotations

import json

import pytest

from omnigraph.errors import InputError
from omnigraph.lang.documents import as_document, read_document

LAUGHS = "a0: &a0 [1, 1]\n" + "\n".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]" for i in range(40))
"""Few lines that expand to many values."""


def plain(text: str) -> object:
    return read_document(text.encode(), "d.yaml").plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: true", True),
        ("a: null", None),
        ("a:", None),
        ("a: 12", 12),
        ("a: -1.5e3", -1500.0),
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 007", "007"),
        ("a: 1_000", "1_000"),
        ("a: 12:30", "12:30"),
        ("a: 2024-01-31", "2024-01-31"),
        ("a: .5", ".5"),
        ("a: '12'", "12"),
        ("a: [x, 1]", ["x", 1]),
        ('{"a":\t"\\ud83d\\ude00\\/"}', "😀/"),
        ("\ufeffa: x", "x"),
    ],
)
def test_plain_words_have_their_json_meaning(text: str, value: object) -> None:
    assert plain(text) == {"a": value}


def test_member_names_are_strings() -> None:
    assert plain("null: 1\ntrue: 2\n3: 4") == {"null": 1, "true": 2, "3": 4}


def test_json_documents_are_read_exactly() -> None:
    value = {"a": [1, {"b": None, "c": "x\ty"}], "d": -0.25, "e": "ü", "f": True}
    for indent in (None, 2, "\t"):
        assert plain(json.dumps(value, indent=indent)) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "d.yaml is empty"),
        ("# only this", "d.yaml is empty"),
        ("a: [1", "d.yaml, line 1, column 6: not YAML: "),
        ("a: 1\nb: 2\na: 3", "d.yaml, line 3: duplicate name 'a'"),
        ("a: !!python/object:os.system x", "line 1: unknown tag tag:yaml.org,2002:python/object:os.system"),
        ("? [1]\n: 2", "d.yaml, line 1: a name must be a text"),
        ("a: 1\nb: &x [*x]", "d.yaml, line 2"),
        ("a: 1\n--- \nb: 2", "d.yaml, line 2"),
        (LAUGHS, "the document is too large or nested too deeply"),
    ],
)
def test_unsupported_yaml_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        plain(text)
    assert said in error.value.message


def test_invalid_utf8_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match=r"d.yaml, line 2: the text is not UTF-8"):
        read_document(b"a: 1\nb: \xff", "d.yaml")


def test_errors_name_the_line_and_the_path() -> None:
    top = read_document(b"a:\n  - b: 1\n    c: x\n", "d.yaml")
    item = top.members(("a",))["a"].items()[0]
    assert str(item.members()["b"].error("is wrong")) == "d.yaml, line 2: a[0].b: is wrong"
    with pytest.raises(InputError, match=r"d.yaml, line 2: a\[0\].b: expected a text, found a number"):
        item.members()["b"].text()
    with pytest.raises(InputError, match=r"d.yaml, line 3: a\[0\].c: unknown name") as error:
        item.members(("b", "d"))
    assert error.value.hint == "known: b, d"
    with pytest.raises(InputError, match=r"d.yaml, line 3: a\[0\].c: expected a list, found a text"):
        item.members()["c"].items()
    with pytest.raises(InputError, match=r"d.yaml, line 1: expected a list, found names with values"):
        top.items()


def test_a_document_can_be_built_from_python_values() -> None:
    made = as_document({"a": [1, {"b": "x"}]}, "the mapping")
    assert made.plain() == {"a": [1, {"b": "x"}]}
    with pytest.raises(InputError, match=r"the mapping: a\[0\]: expected a text, found a number"):
        made.members()["a"].items()[0].text()
    with pytest.raises(InputError, match=r"the mapping: a: a value of type set is not allowed"):
        as_document({"a": {1}}, "the mapping")


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000])
def test_a_deeply_nested_document_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"too deeply|not YAML"):
        read_document(text.encode(), "deep.yaml")
