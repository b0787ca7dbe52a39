r"""Patterns have the same meaning in every alphabet: `\w`, `\d`, `\s`, `\b` and case."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph.evaluate.texts import matches
from omnigraph.lang.schema.regex import matches_part, pattern_error, translated


def found(pattern: str, text: str) -> bool:
    """Whether a pattern matches, by both evaluation methods, which must agree."""
    one = matches_part(pattern, text)
    assert matches(pa.array([text, None, "plain"]), pattern).to_pylist()[:2] == [one, None]
    return one


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"^\w+$", "Müller", True),
        (r"^\w+$", "Пётр_1", True),
        (r"^\w+$", "e\u0301te\u0301", True),
        (r"^\w+$", "a-b", False),
        (r"^[\w-]+$", "Öl-Ölung", True),
        (r"^\W+$", "—…", True),
        (r"^\W+$", "ß", False),
        (r"^[\W]+$", "— ", True),
        (r"^[^\W]+$", "Straße", True),
        (r"^[^\W_]+$", "a_b", False),
        (r"^\d+$", "٣٤", True),
        (r"^[\d.]+$", "१.२", True),
        (r"^\D+$", "٣", False),
        (r"^[\D]+$", "٣", False),
        (r"^a\sb$", "a\u00a0b", True),
        (r"^a\sb$", "a\u3000b", True),
        (r"^\S+$", "a\u2003b", False),
        (r"^[\S]+$", "a\u2003b", False),
        (r"(?i)^ÄRGER$", "ärger", True),
        (r"(?i)^σας$", "ΣΑΣ", True),
        (r"\bÖl\b", "das Öl brennt", True),
        (r"\bÖl\b", "Ölung", False),
        (r"\bÖl\b", "Ool Öl", True),
        (r"r\b", "für", True),
        (r"f\b", "für", False),
        (r"\Büche\b", "Küche", True),
        (r"\Büche", "üche", False),
        (r"_\bä", "_ä", False),
        (r"\b_ä\b", "x _ä y", True),
        (r"^.\b.$", "ä-", True),
        (r"^.\b.$", "äö", False),
        (r"(?s)^.\b.$", "ä\n", True),
        (r"^.\b.$", "ä\n", False),
        (r"(?m)^\bö", "x\nö", True),
        (r"[A-z]\b$", "ä_", True),
        (r"^[^_]+\b$", "ä_", False),
        (r"\bx{2}\b", "ä xx", True),
        (r"\Qa.b\E\b", "é a.b", True),
        (r"\b(?:ja|né)\b", "ano, né!", True),
    ],
)
def test_patterns_match_as_expected(pattern: str, text: str, expected: bool) -> None:
    assert pattern_error(pattern) is None
    assert found(pattern, text) is expected


_SINGLE = ["a", "ä", "_", "-", " ", ".", "^", "$"]
_CLASSES = [r"\b", r"\B", r"\w", r"\W", r"\s", r"\d", "[aä]", "[^ä_]", r"[\w-]"]
_ATOMS = [*_SINGLE, *_CLASSES, "(?:ö|b)", "a?", r"\w*"]


@given(st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=6), st.text("aäöb_- 1٣\n", max_size=8))
def test_patterns_agree_with_python(atoms: list[str], text: str) -> None:
    assume(text or r"\B" not in atoms)  # Python before 3.14 does not match \B in an empty text
    pattern = "".join(atoms)
    python = pattern.replace("$", r"\Z")  # only in Python, $ also matches before the last line end
    assert found(pattern, text) is (re.search(python, text) is not None)


@pytest.mark.parametrize("pattern", ["[", "a\\", "(?", "[[:", r"\p{", "{", "(?P<", r"\x{", "[a-", r"\Q", "[]", "[^]"])
def test_broken_patterns_do_not_crash_the_translation(pattern: str) -> None:
    translated(pattern)
    pattern_error(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a-z&&[^b]]", "not an intersection"),
        ("(?U)a", "lazy"),
        (r"a\Cb", "a part of a character"),
        ("(?x) a", "invalid perl operator: (?x"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
    ],
)
def test_patterns_that_re2_lacks_or_reads_differently_are_refused(pattern: str, reason: str) -> None:
    assert reason in str(pattern_error(pattern))
