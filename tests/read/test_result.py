"""Results: the same rows in every format, without loss."""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import networkx as nx
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.read.everything import full

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.read.result.result import Result, for_people
from omnigraph.settings import FSYNC

UTC = dt.UTC
ALL = """
query all() {
    match { $t: Thing }
    return {
        $t.name as name, $t.text as text, $t.flag as flag, $t.small as small, $t.big as big, $t.huge as huge,
        $t.single as single, $t.double as double, $t.day as day, $t.moment as moment, $t.face as face,
        $t.texts as texts, $t.numbers as numbers, $t.days as days, $t.moments as moments
    }
    order { name }
}
"""
PEOPLE = """
node Person { name: String @key  age: I32? }
node Boat { name: String @key }
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
edge Owns: Person -> Boat { share: F64? }
"""


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSYNC.name, "0")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FSYNC.name, "0")
        with full(tmp_path_factory.mktemp("everything") / "graph") as graph:
            yield graph.query(ALL)


def result(**columns: pa.Array) -> Result:
    """A result that is built without a query."""
    return Result("made", "main", None, "a commit", for_people(pa.table(columns)), cast(Any, None))


# ---- Arrow and Python


def test_datetimes_and_dates_have_their_arrow_types(everything: Result) -> None:
    schema = everything.to_arrow().schema
    assert schema.field("moment").type == pa.timestamp("ms", "UTC")
    assert schema.field("moments").type.value_type == pa.timestamp("ms", "UTC")
    assert schema.field("day").type == pa.date32()
    assert schema.field("huge").type == pa.uint64()
    assert not schema.field("name").nullable
    rows = {row["name"]: row for row in everything}
    assert rows["plain"]["moment"] == dt.datetime(1970, 1, 1, tzinfo=UTC)
    assert rows["plain"]["moments"] == [
        dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(milliseconds=n) for n in (0, 1)
    ]
    assert rows["plain"]["day"] == dt.date(2020, 2, 29)
    assert {row["huge"] for row in rows.values()} == {1, 2**64 - 1, 2**63, None}


def test_rows_are_the_same_as_iterator_list_and_batches(everything: Result) -> None:
    assert len(everything) == everything.row_count == 4
    assert list(everything) == everything.to_pylist() == everything.to_arrow().to_pylist()
    assert [batch.num_rows for batch in everything.batches(3)] == [3, 1]
    assert "4 rows of name, text, flag" in repr(everything)


def test_a_result_supports_the_arrow_stream_interface(everything: Result) -> None:
    assert pa.table(everything) == everything.to_arrow()
    assert pl.DataFrame(everything).shape == (4, 15)


def test_data_frames_have_the_same_values(everything: Result) -> None:
    assert everything.to_polars()["big"].to_list() == [row["big"] for row in everything]
    frame = everything.to_pandas()
    assert list(frame.columns) == list(everything.columns)
    first = frame["moment"].iloc[[row["name"] for row in everything].index("plain")]
    assert first.isoformat() == "1970-01-01T00:00:00+00:00"


def test_nullable_integers_are_exact_in_pandas() -> None:
    huge, big = [2**64 - 1, None, 2**63 + 1], [None, -(2**63), 2**53 + 1]
    frame = result(
        text=pa.array(["a", None, "c"]), huge=pa.array(huge, pa.uint64()), big=pa.array(big), n=pa.array([1, 2, 3])
    ).to_pandas()
    assert list(frame.columns) == ["text", "huge", "big", "n"]
    assert list(map(str, frame.dtypes))[1:] == ["UInt64", "Int64", "int64"]
    assert [
        None if missing else int(value) for value, missing in zip(frame["huge"], frame["huge"].isna(), strict=True)
    ] == huge
    assert [
        None if missing else int(value) for value, missing in zip(frame["big"], frame["big"].isna(), strict=True)
    ] == big
    alone = result(n=pa.array([1, None])).to_pandas()
    assert (alone.shape, str(alone.dtypes["n"])) == ((2, 1), "Int64")


def test_the_batch_size_must_be_positive(everything: Result) -> None:
    for rows in (0, -1):
        with pytest.raises(InputError, match="a batch cannot have"):
            list(everything.batches(rows))


@pytest.mark.parametrize(
    ("package", "method"), [("pandas", "to_pandas"), ("polars", "to_polars"), ("networkx", "to_networkx")]
)
def test_a_missing_package_is_named(
    everything: Result, monkeypatch: pytest.MonkeyPatch, package: str, method: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"{package} is not installed") as caught:
        getattr(everything, method)()
    assert caught.value.hint == f"pip install 'omnigraph[{package}]'"


def test_a_result_is_immutable(everything: Result) -> None:
    with pytest.raises(AttributeError):
        everything.branch = "other"  # type: ignore[misc]


# ---- JSON


def test_json_has_the_documented_envelope(everything: Result) -> None:
    read = json.loads(everything.to_json())
    assert read == json.loads(everything.to_json(pretty=True))
    assert list(read) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert read["target"] == {"branch": "main", "snapshot": None}
    assert read["columns"] == list(everything.columns)
    assert read["row_count"] == len(read["rows"]) == 4
    assert read["graph_commit_id"] == everything.graph_commit_id


def test_json_is_exact_and_in_utc(everything: Result) -> None:
    rows = {row["name"]: row for row in json.loads(everything.to_json())["rows"]}
    low, high = rows["zürich ☃ \u2028 \U0001f600"], rows['quo"te\\back\nline\ttab\u0001']
    assert (low["moment"], high["moment"]) == ("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")
    assert (low["day"], high["day"]) == ("0001-01-01", "9999-12-31")
    assert (low["big"], high["big"], low["huge"]) == (-(2**63), 2**63 - 1, 2**64 - 1)
    assert math.copysign(1, low["double"]) == -1
    assert (low["moments"], high["texts"], rows["nothing"]["texts"]) == (["1969-12-31T23:59:59.999Z"], [], None)
    assert [rows["plain"]["face"], rows["plain"]["flag"]] == [[1.0, 2.0, 3.0], True]


def test_js_safe_json_has_large_integers_as_strings() -> None:
    limit = 2**53 - 1
    made = result(
        n=pa.array([limit, limit + 1, -limit, -limit - 1]), u=pa.array([0, 2**64 - 1, limit, limit + 1], pa.uint64())
    )
    assert [json.loads(row) for row in made.json_rows(js_safe=True)] == [
        {"n": limit, "u": 0},
        {"n": str(limit + 1), "u": str(2**64 - 1)},
        {"n": -limit, "u": limit},
        {"n": str(-limit - 1), "u": str(limit + 1)},
    ]
    assert json.loads(made.to_json())["rows"][1] == {"n": limit + 1, "u": 2**64 - 1}
    lists = result(n=pa.array([[1, 2**60], None]))
    assert list(lists.json_rows(js_safe=True)) == [f'{{"n":[1,"{2**60}"]}}', '{"n":null}']


def test_non_finite_floats_are_strings_in_json() -> None:
    made = result(
        x=pa.array([math.nan, math.inf, -math.inf, 1.5, None]), y=pa.array([[math.nan], [], None, [2.0], [None]])
    )
    assert [json.loads(row) for row in made.json_rows()] == [
        {"x": "NaN", "y": ["NaN"]},
        {"x": "Infinity", "y": []},
        {"x": "-Infinity", "y": None},
        {"x": 1.5, "y": [2.0]},
        {"x": None, "y": [None]},
    ]


texts = st.text(st.characters(exclude_categories=["Cs"]))
moments = st.integers(-62135596800, 253402300799).map(
    lambda s: dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(0, s)
)
COLUMNS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "text": (texts, pa.utf8()),
    "flag": (st.booleans(), pa.bool_()),
    "whole": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "real": (st.floats(), pa.float64()),
    "day": (st.dates(), pa.date32()),
    "moment": (moments, pa.timestamp("ms", "UTC")),
}


def as_json(value: Any) -> Any:
    """The JSON form of one value."""
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.strftime(f"{value.year:04}-%m-%dT%H:%M:%S.000Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@pytest.mark.parametrize("kind", COLUMNS)
@given(data=st.data())
def test_a_json_column_equals_the_json_of_its_values(kind: str, data: st.DataObject) -> None:
    values, arrow = COLUMNS[kind]
    rows = data.draw(st.lists(st.none() | values, max_size=5))
    lists = data.draw(
        st.lists(st.none() | st.lists(st.none() | values, max_size=3), min_size=len(rows), max_size=len(rows))
    )
    made = result(one=pa.array(rows, arrow), many=pa.array(lists, pa.list_(arrow)))
    found = [json.loads(row) for row in made.json_rows()]
    assert found == [{"one": as_json(one), "many": as_json(many)} for one, many in zip(rows, lists, strict=True)]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_f32_values_are_short_in_json_and_round_trip(values: list[float]) -> None:
    made = result(x=pa.array(values, pa.float32()))
    found = [json.loads(row)["x"] for row in made.json_rows()]
    assert pa.array(found, pa.float32()) == made.to_arrow()["x"].combine_chunks()
    assert list(result(x=pa.array([0.1], pa.float32())).json_rows()) == ['{"x":0.1}']


# ---- notebooks


def test_notebook_html_escapes_values() -> None:
    html = result(x=pa.array(["<script>alert(1)</script>", "a & b", None]))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "a &amp; b" in html
    assert "<i>null</i>" in html
    assert "3 rows" in html


def test_notebook_html_truncates_rows_and_long_values() -> None:
    html = result(x=pa.array(["y" * 5_000] * 1_000))._repr_html_()
    assert len(html) < 50_000
    assert html.count("<tr>") == 51
    assert "1,000 rows, the first 50 of them shown" in html


# ---- networkx


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", PEOPLE) as graph:
        graph.load(
            {
                "Person": pa.table({"name": ["ann", "bob", "cid"], "age": pa.array([41, 27, None], pa.int32())}),
                "Boat": pa.table({"name": ["ann"]}),
                "Knows": [{"from": "ann", "to": "bob", "since": "2020-01-02"}, {"from": "bob", "to": "cid"}],
                "Owns": [{"from": "bob", "to": "ann", "share": 0.5}, {"from": "bob", "to": "ann", "share": 0.25}],
            },
            mode="append",
        )
        yield graph


def test_networkx_has_nodes_for_ids_and_edges_of_the_match(people: Graph) -> None:
    text = "query q() { match { $a: Person  $a knows $b } return { $a.id as a, $a.age as age, $b.id as b, $b.age } }"
    drawn = people.query(text).to_networkx()
    assert dict(drawn.nodes(data=True)) == {
        ("Person", "ann"): {"age": 41},
        ("Person", "bob"): {"age": 27},
        ("Person", "cid"): {"age": None},
    }
    assert set(drawn.edges(keys=True)) == {
        (("Person", "ann"), ("Person", "bob"), ("Knows", None)),
        (("Person", "bob"), ("Person", "cid"), ("Knows", None)),
    }
    assert nx.shortest_path(drawn, ("Person", "ann"), ("Person", "cid")) == [
        ("Person", n) for n in ("ann", "bob", "cid")
    ]


def test_networkx_edges_of_a_variable_have_keys_and_properties(people: Graph) -> None:
    text = "query q() { match { $p: Person  $p $o:owns $b } return { $p.id as p, $b.id as b, $o.id as o, $o.share } }"
    drawn = people.query(text).to_networkx()
    assert set(drawn.nodes) == {("Person", "bob"), ("Boat", "ann")}
    shares = {key[0]: data["share"] for _, _, key, data in drawn.edges(keys=True, data=True)}
    assert shares == {"Owns": 0.5} or shares == {"Owns": 0.25}
    assert sorted(data["share"] for *_, data in drawn.edges(data=True)) == [0.25, 0.5]


def test_networkx_edges_keep_their_stored_direction(people: Graph) -> None:
    text = "query q() { match { $b: Boat  $b owns $p } return { $b.id as b, $p.id as p } }"
    assert list(people.query(text).to_networkx().edges()) == [(("Person", "bob"), ("Boat", "ann"))]


def test_networkx_edges_need_only_their_endpoints(people: Graph) -> None:
    text = "query q() { match { $a: Person  $a $k:knows $_ } return { $k.from as source, $k.to as target, $k.since } }"
    drawn = people.query(text).to_networkx()
    assert {(s, t): d["since"] for s, t, d in drawn.edges(data=True)} == {
        (("Person", "ann"), ("Person", "bob")): dt.date(2020, 1, 2),
        (("Person", "bob"), ("Person", "cid")): None,
    }


def test_networkx_skips_null_optional_variables(people: Graph) -> None:
    text = "query q() { match { $a: Person  optional { $a owns $b } } return { $a.id as a, $b.id as b } }"
    drawn = people.query(text).to_networkx()
    assert len(drawn) == 4
    assert list(drawn.edges()) == [(("Person", "bob"), ("Boat", "ann"))]


def test_networkx_has_no_edges_for_variable_length_hops(people: Graph) -> None:
    text = "query q() { match { $a: Person  $a knows{1,2} $b } return { $a.id as a, $b.id as b } }"
    drawn = people.query(text).to_networkx()
    assert (len(drawn), drawn.number_of_edges()) == (3, 0)


def test_networkx_needs_ids_in_the_result(people: Graph) -> None:
    with pytest.raises(InputError, match="no column with node ids") as caught:
        people.query("query q() { match { $a: Person  $a knows $b } return { $a.age, count($b) as n } }").to_networkx()
    assert "$a.id" in str(caught.value.hint)


def test_networkx_needs_the_type_of_an_interface_variable(tmp_path: Path) -> None:
    named = "implements Named { name: String @key }"
    schema = f"interface Named {{ name: String }} node A {named} node B {named}"
    with omnigraph.init(tmp_path / "named", schema) as graph:
        graph.load({"A": pa.table({"name": ["x"]}), "B": pa.table({"name": ["x"]})}, mode="append")
        with pytest.raises(InputError, match=r"\$n is one of A, B, and the result does not contain its type") as caught:
            graph.query("query q() { match { $n: Named } return { $n.id as id } }").to_networkx()
        assert caught.value.hint == "return type($n) as well"
        drawn = graph.query("query q() { match { $n: Named } return { $n.id as id, type($n) as kind } }").to_networkx()
        assert set(drawn.nodes) == {("A", "x"), ("B", "x")}
