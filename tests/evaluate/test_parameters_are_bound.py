"""Parameters accept the JSON and Python values of their type exactly, and errors name the parameter and the reason."""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ParameterError
from omnigraph.evaluate import bind, undeclared
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import INTEGER_RANGES, INTEGERS, Scalar

CATALOG = compile_schema("node Person { name: String @key  mood: enum(glad, sad)?  moods: [enum(glad, sad)]? }")


def declared(text: str) -> tuple[ir.Parameter, ...]:
    """The parameters of a query that declares these."""
    return compile_query(f'query q({text}) {{ delete Person where name = "" }}', CATALOG).params


def one(kind: str, value: object, **options: bool) -> Any:
    return bind(declared(f"$x: {kind}"), {"x": value}, **options)["x"]


def refused(kind: str, value: object, **options: bool) -> str:
    with pytest.raises(ParameterError) as caught:
        one(kind, value, **options)
    assert caught.value.parameter == "x"
    assert str(caught.value).startswith("$x: ")
    return str(caught.value)


@given(scalar=st.sampled_from(sorted(INTEGERS)), number=st.integers(-(2**65), 2**65))
def test_integers_are_numbers_or_decimal_texts_in_range(scalar: Scalar, number: int) -> None:
    low, high = INTEGER_RANGES[scalar]
    for form in (number, str(number), json.loads(json.dumps(number)), Decimal(number)):
        if low <= number <= high:
            assert one(scalar.value, form) == number
        else:
            assert "out of range" in refused(scalar.value, form)


def test_the_largest_unsigned_integer_fits() -> None:
    assert one("U64", 2**64 - 1) == 2**64 - 1
    assert one("U64", str(2**64 - 1)) == 2**64 - 1
    assert one("U64", np.uint64(2**64 - 1)) == 2**64 - 1


@pytest.mark.parametrize(
    "value", [True, False, 3.0, 3.5, "", "3.0", "1e3", "0x1", "+3", " 3", "٣", "9" * 5000, [3], {}]
)
def test_invalid_integers_are_refused(value: object) -> None:
    refused("I64", value)


def test_leading_zeros_of_an_integer_are_ignored() -> None:
    assert one("I32", "-" + "0" * 6000 + "7") == -7


@given(number=st.integers(2**53, 2**63 - 1), sign=st.sampled_from([1, -1]))
def test_js_safe_mode_refuses_large_integers_as_numbers(number: int, sign: int) -> None:
    assert "send it as a text" in str(refuse_hint("I64", sign * number))
    assert one("I64", str(sign * number), js_safe=True) == sign * number
    assert one("I64", sign * number) == sign * number
    assert one("I64", sign * (2**53 - 1), js_safe=True) == sign * (2**53 - 1)
    assert "item 1" in refused("[I64]", [0, sign * number], js_safe=True)


def refuse_hint(kind: str, value: object) -> str | None:
    with pytest.raises(ParameterError) as caught:
        one(kind, value, js_safe=True)
    return caught.value.hint


@given(number=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30))
def test_floats_accept_any_number_in_range(number: float) -> None:
    assert one("F64", number) == float(number)
    try:
        narrow = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        assert "too large for F32" in refused("F32", number)
    else:
        assert one("F32", number) == narrow


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1.5", True, None, 10**400, Decimal("nan"), []])
def test_invalid_floats_are_refused(value: object) -> None:
    refused("F64", value)


@given(moment=st.datetimes(), offset=st.integers(-14 * 60, 14 * 60), digits=st.integers(0, 6))
def test_times_are_read_from_text_and_python_values(moment: datetime, offset: int, digits: int) -> None:
    zone = timezone(timedelta(minutes=offset))
    aware = moment.replace(tzinfo=zone)
    text = moment.isoformat(timespec="microseconds")
    try:
        wanted = parse_datetime(aware.isoformat(timespec="microseconds"))
    except ValueError:
        refused("DateTime", aware)
        return
    assert one("DateTime", aware) == wanted == one("DateTime", aware.isoformat(timespec="microseconds"))
    assert one("DateTime", moment) == parse_datetime(text) == one("DateTime", np.datetime64(moment))
    assert one("Date", aware) == wanted // 86_400_000 == parse_date(aware.isoformat(timespec="microseconds"))
    assert (
        one("Date", moment.date()) == parse_date(moment.date().isoformat()) == one("Date", np.datetime64(moment, "D"))
    )
    assert one("DateTime", moment.date()) == one("Date", moment.date()) * 86_400_000


def test_times_are_truncated_to_milliseconds() -> None:
    assert one("DateTime", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)) == -1


@pytest.mark.parametrize(
    "value",
    ["", "2026-02-30", "yesterday", 20_000, True, None, np.datetime64("NaT", "s"), np.datetime64("30000-01-01")],
)
@pytest.mark.parametrize("kind", ["Date", "DateTime"])
def test_invalid_dates_are_refused(kind: str, value: object) -> None:
    refused(kind, value)


def test_strings_and_booleans_are_checked() -> None:
    assert one("String", "") == ""
    assert one("String", "é😀") == "é😀"
    assert one("Bool", True) is True
    assert one("Bool", np.False_) is False
    wrong: dict[str, list[object]] = {"String": [1, True, None, b"x", ["x"]], "Bool": [0, 1, "true", None]}
    for kind, values in wrong.items():
        for value in values:
            refused(kind, value)
    assert "surrogate" in refused("String", json.loads('"\\ud800"'))


def test_enums_are_checked() -> None:
    assert one("Person.mood", "glad") == "glad"
    assert one("Person.moods", ["sad", "glad"]) == ("sad", "glad")
    assert one("Person.mood?", None) is None
    message = refused("Person.mood", "gladd")
    assert "'gladd' is not a value" in message
    assert "item 1" in refused("Person.moods", ["sad", "mad"])


def test_blobs_are_strings_or_bytes() -> None:
    assert one("Blob", "base64:aGk=") == "base64:aGk="
    assert one("Blob", b"hi") == "base64:" + base64.b64encode(b"hi").decode()
    assert one("Blob", bytearray()) == "base64:"


@given(items=st.lists(st.integers(-9, 9), max_size=4))
def test_lists_are_sequences_of_fitting_items(items: list[int]) -> None:
    for form in (items, tuple(items), np.array(items, np.int64)):
        assert one("[I32]", form) == tuple(items)
    assert one("[String]", [str(i) for i in items]) == tuple(str(i) for i in items)


def test_a_wrong_item_is_named() -> None:
    assert "item 2: null is not allowed" in refused("[I32]", [1, 2, None])
    assert "item 0" in refused("[Date]", ["2026-13-01"])
    assert "expected [I32]" in refused("[I32]", "12")
    assert "expected [I32]" in refused("[I32]", 12)
    refused("[I32]", np.zeros((2, 2), np.int64))


def test_vectors_must_have_their_dimension() -> None:
    assert one("Vector(3)", [1, 2.5, -0.0]) == (1.0, 2.5, -0.0)
    assert one("Vector(2)", np.array([0.1, 0.2], np.float32)) == (np.float32(0.1), np.float32(0.2))
    assert one("Vector(2)?", None) is None
    assert "expected 3 numbers, not 2" in refused("Vector(3)", [1, 2])
    assert "item 1" in refused("Vector(2)", [1, "2"])
    assert "item 0" in refused("Vector(1)", [None])
    assert "item 0" in refused("Vector(1)", [1e39])
    refused("Vector(1)", "1")


def test_null_needs_a_nullable_type() -> None:
    for kind in ("String", "I32", "F64", "Date", "[I32]", "Vector(2)", "Person.mood"):
        assert "null" in refused(kind, None)
        assert one(f"{kind}?", None) is None


def test_omitted_parameters_are_defaults_or_null() -> None:
    params = declared('$a: I64 = 10, $b: I64?, $c: String = "x", $d: I64? = 5')
    assert bind(params, {}) == {"a": 10, "b": None, "c": "x", "d": 5}
    assert bind(params, {"a": 1, "b": 2, "c": "y", "d": None}) == {"a": 1, "b": 2, "c": "y", "d": None}
    with pytest.raises(ParameterError, match=r"^\$a: null"):
        bind(params, {"a": None})


def test_a_missing_parameter_is_named() -> None:
    params = declared("$name: String, $age: I32")
    with pytest.raises(ParameterError, match=r"^\$age: not given") as caught:
        bind(params, {"name": "x"})
    assert (caught.value.parameter, caught.value.hint) == ("age", None)
    with pytest.raises(ParameterError, match=r"^\$age: not given"):
        bind(params, {"name": "x", "unrelated": 3})


def test_a_misspelt_parameter_gets_a_suggestion() -> None:
    params = declared("$name: String, $age: I32")
    with pytest.raises(ParameterError, match="there is no parameter 'agee'") as caught:
        bind(params, {"name": "x", "agee": 3})
    assert (caught.value.parameter, caught.value.hint) == ("agee", "did you mean 'age'?")
    with pytest.raises(ParameterError, match="there is no parameter") as caught:
        bind(params, {"name": "x", "$age": 3})
    assert caught.value.hint == "give it as 'age', without $"


def test_undeclared_parameters_are_ignored_and_listed() -> None:
    params = declared("$name: String")
    given_ = {"name": "x", "other": 1, "more": None}
    assert bind(params, given_) == {"name": "x"}
    assert undeclared(params, given_) == ("more", "other")


@pytest.mark.parametrize("kind", ["String?", 'String = "x"'])
def test_a_misspelt_optional_parameter_is_refused(kind: str) -> None:
    """An unknown name together with an omitted known one is probably a misspelling."""
    params = declared(f"$number: I64, $mail: {kind}")
    with pytest.raises(ParameterError, match=r"^\$mial: there is no parameter 'mial'") as caught:
        bind(params, {"number": 1, "mial": "ann@x"})
    assert caught.value.parameter == "mial"
    assert caught.value.hint == "did you mean 'mail'?"
    assert bind(params, {"number": 1, "mail": None if "?" in kind else "", "mial": "ann@x"}).keys() == {
        "number",
        "mail",
    }
    assert bind(params, {"number": 1}).keys() == {"number", "mail"}


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(), st.lists
    )
)
def test_any_value_is_converted_or_refused(value: object) -> None:
    """Every input gives a value of the type, or an error that names the parameter."""
    for kind in ("String", "I32", "U64", "F32", "Bool", "Date", "DateTime", "Blob", "[I64]?", "[Date]", "Vector(2)"):
        (param,) = declared(f"$x: {kind}")
        try:
            found = bind([param], {"x": value})["x"]
        except ParameterError as error:
            fine = error.parameter == "x" and len(str(error)) < 400
        else:
            fine = param.type.nullable if found is None else isinstance(found, tuple) == kind.startswith(("[", "V"))
        assert fine, (kind, value)


def test_a_date_from_a_datetime_uses_utc() -> None:
    assert one("Date", datetime(2026, 3, 14, 23, 30, tzinfo=timezone(timedelta(hours=-2)))) == parse_date("2026-03-15")
    assert one("Date", date(2026, 3, 14)) == parse_date("2026-03-14")


@pytest.mark.parametrize("params", ["$age: I64", "$age: I64?"])
def test_a_parameter_name_with_a_dollar_sign_is_refused(params: str) -> None:
    with pytest.raises(ParameterError) as caught:
        bind(declared(params), {"$age": 3})
    assert caught.value.hint == "give it as 'age', without $"
