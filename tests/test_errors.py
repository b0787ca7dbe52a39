"""Every kind of error is reported the same way everywhere, is documented, and shows its location."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph.errors
from omnigraph.errors import (
    REPORTS,
    CompileError,
    ConflictError,
    Disposition,
    InputError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    ParseError,
    RetryableError,
    SourceText,
    Span,
    TypeCheckError,
    report_for,
)

PAGE = (Path(__file__).parent.parent / "docs" / "errors.md").read_text(encoding="utf-8")

for module in pkgutil.iter_modules(omnigraph.errors.__path__):
    importlib.import_module(f"omnigraph.errors.{module.name}")


def family(cls: type[OmnigraphError] = OmnigraphError) -> Iterator[type[OmnigraphError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__.startswith("omnigraph.") and not child.__name__.startswith("_"):
            yield from family(child)


CLASSES = sorted(set(family()), key=lambda cls: cls.__name__)


# ---- the table


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_has_a_row(cls: type[OmnigraphError]) -> None:
    """A class with its own code has its own row. Any other class shares the row of an ancestor below the base."""
    row = next(ancestor for ancestor in cls.__mro__ if ancestor in REPORTS)
    assert row is cls or "code" not in vars(cls)
    assert row is not OmnigraphError or cls is OmnigraphError
    assert cls.__doc__


@pytest.mark.parametrize("cls", REPORTS, ids=lambda cls: cls.__name__)
def test_every_row_agrees_with_its_class(cls: type[OmnigraphError]) -> None:
    report = REPORTS[cls]
    assert cls in CLASSES
    assert report.anchor == cls.code
    assert re.fullmatch(r"[a-z_]+", report.http_code)
    assert 0 < report.exit_code < 64
    statuses = {
        Disposition.FIX: {400, 401, 403, 404, 405, 410, 413, 415, 416, 424, 500},
        Disposition.RETRY: {409, 429, 503},
        Disposition.DECIDE: {409, 412},
        Disposition.UNKNOWN: {500, 503},
    }
    assert report.http_status in statuses[cls.disposition]


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in REPORTS]
    assert len(set(codes)) == len(codes)


def test_an_http_code_has_one_status() -> None:
    statuses: dict[str, set[int]] = {}
    for report in REPORTS.values():
        statuses.setdefault(report.http_code, set()).add(report.http_status)
    # A request that is too large, of the wrong media type, or for bytes that do not exist, has its own status.
    assert statuses["bad_request"] <= {400, 413, 415, 416}
    assert {code for code, found in statuses.items() if len(found) > 1} <= {"bad_request"}


@pytest.mark.parametrize("cls", REPORTS, ids=lambda cls: cls.__name__)
def test_every_row_is_documented(cls: type[OmnigraphError]) -> None:
    report = REPORTS[cls]
    (section,) = re.findall(rf"^### `{report.anchor}`\n+(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert f"HTTP {report.http_status}" in section
    assert report.http_code == report.anchor or f"`{report.http_code}`" in section
    assert report.exit_code == 1 or f"exit status {report.exit_code}" in section


def test_the_documentation_has_no_other_codes() -> None:
    assert set(re.findall(r"^### `(\w+)`", PAGE, re.MULTILINE)) == {report.anchor for report in REPORTS.values()}


def test_every_disposition_is_documented() -> None:
    assert [word for word in Disposition if f"| `{word}` |" not in PAGE] == []


def test_a_derived_error_is_reported_like_its_nearest_ancestor() -> None:
    class VerySpecificError(NotFoundError):
        pass

    assert report_for(VerySpecificError("x")) == REPORTS[NotFoundError]
    assert report_for(OmnigraphError("x")) == REPORTS[OmnigraphError]


def test_only_retry_is_retryable() -> None:
    for cls in (OmnigraphError, InputError, ConflictError, RetryableError, OutcomeUnknownError):
        assert cls("x").retryable == (cls.disposition is Disposition.RETRY)


# ---- rendering


def test_an_error_without_a_location_shows_only_its_message() -> None:
    assert InputError("no such file").render() == "no such file"
    assert InputError("no such file", hint="check the path").render() == "no such file\n  help: check the path"
    assert ParseError("odd").render() == "parse error: odd"
    assert ParseError("odd").location is None


def shown(text: str, word: str, name: str | None = "q.gq") -> list[str]:
    """The excerpt for a word in a text."""
    data = text.encode()
    start = data.index(word.encode())
    return SourceText(text, name).excerpt(Span(start, start + len(word.encode()))).splitlines()


def test_an_error_shows_location_source_line_and_hint() -> None:
    source = SourceText("match {\n    $p.titel = 1\n}", "q.gq")
    error = TypeCheckError(
        "no 'titel'", span=Span(15, 20), diagnostic="T6", hint="did you mean 'title'?", source=source
    )
    assert error.location == (2, 8)
    assert error.render() == (
        "type error: T6: no 'titel'\n"
        " --> q.gq:2:8\n"
        "  |\n"
        "2 |     $p.titel = 1\n"
        "  |        ^^^^^\n"
        "  = help: did you mean 'title'?"
    )


def test_a_traceback_shows_the_location_once_if_the_source_is_set_later() -> None:
    error = TypeCheckError("no 'bad'", span=Span(2, 5), hint="do good")
    assert error.__notes__ == ["help: do good"]
    for text in ("a bad word", "a bad deed"):
        error.source = SourceText(text, "q.gq")
    place = " --> q.gq:1:3\n  |\n1 | a bad deed\n  |   ^^^"
    assert error.__notes__ == [place, "help: do good"]
    assert error.render().count("^^^") == 1


def test_a_source_without_a_name_is_shown_as_text() -> None:
    assert shown("a bad word", "bad", None)[0] == " --> <text>:1:3"


@pytest.mark.parametrize(
    ("text", "line", "caret"),
    [
        ("\t\tbad", "1 | \t\tbad", "  | \t\t^^^"),
        ("a\tbad", "1 | a\tbad", "  |  \t^^^"),
        ("ßö bad", "1 | ßö bad", "  |    ^^^"),
        ("\U0001f600 bad", "1 | \U0001f600 bad", "  |   ^^^"),
        ("bad\r\nnext", "1 | bad", "  | ^^^"),
        ("one\r\ntwo bad\r\n", "2 | two bad", "  |     ^^^"),
    ],
)
def test_the_caret_is_below_its_word(text: str, line: str, caret: str) -> None:
    assert shown(text, "bad")[2:] == [line, caret]


def test_a_long_line_is_truncated_around_the_word() -> None:
    _, _, line, caret = shown("x" * 5_000 + "bad" + "y" * 5_000, "bad")
    assert len(line) < 140
    assert line.count("…") == 2
    at = caret.index("^")
    assert line[at : at + 3] == "bad"
    assert caret.count("^") == 3


def test_a_word_at_the_start_or_end_of_a_long_line_is_shown() -> None:
    for text in ("bad" + "x" * 5_000, "x" * 5_000 + "bad"):
        _, _, line, caret = shown(text, "bad")
        at = caret.index("^")
        assert line[at : at + 3] == "bad"
        assert line.count("…") == 1


def test_a_span_over_several_lines_is_marked_to_the_end_of_the_first() -> None:
    text = "one {\n  two\n}\n"
    assert SourceText(text).excerpt(Span(4, len(text))).splitlines()[2:] == ["1 | one {", "  |     ^"]


def test_line_numbers_of_any_width_are_aligned() -> None:
    place, bar, line, caret = shown("\n" * 1233 + "a bad word", "bad")
    assert (place, bar, line, caret) == ("    --> q.gq:1234:3", "     |", "1234 | a bad word", "     |   ^^^")


def test_control_characters_in_quoted_source_are_escaped() -> None:
    source = SourceText("a \x1b[2Jbad\x9b1m \r word")
    rendered = ParseError("found '\x1b[31m'", span=Span(6, 9), source=source, hint="\x07").render()
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", rendered) is None
    assert rendered.splitlines()[4].index("^") == rendered.splitlines()[3].index("bad")


@given(st.text(max_size=60), st.integers(0, 80), st.integers(0, 80))
def test_any_span_in_any_text_can_be_shown(text: str, start: int, width: int) -> None:
    source = SourceText(text.encode(errors="replace").decode())
    lines = source.excerpt(Span(start, start + width)).split("\n")
    assert len(lines) == 4
    assert "^" in lines[3]
    assert CompileError("x", span=Span(start, start + width), source=source).render()


def test_tracebacks_show_the_hint() -> None:
    error = InputError("there is no type 'Persn'", hint="did you mean 'Person'?")
    shown = "".join(traceback.format_exception_only(error))
    assert shown == "omnigraph.errors.family.InputError: there is no type 'Persn'\nhelp: did you mean 'Person'?\n"
    assert str(error) == "there is no type 'Persn'"
    again = pickle.loads(pickle.dumps(error))
    assert "".join(traceback.format_exception_only(again)) == shown
    assert again.hint == error.hint
    assert not hasattr(InputError("no hint"), "__notes__")
