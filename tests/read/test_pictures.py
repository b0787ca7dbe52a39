"""Charts and drawings are well-formed SVG, show the values, and escape every text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.read.result.chart import ticks
from omnigraph.read.result.drawing import layout
from omnigraph.read.result.picture import Picture
from omnigraph.read.result.result import Result, for_people
from omnigraph.settings import FSYNC

NASTY = "<script>alert('&')</script>\x1b]0;\x00\ufffe"
SVG = "{http://www.w3.org/2000/svg}"


def result(**columns: pa.Array) -> Result:
    return Result("q", "main", None, None, for_people(pa.table(columns)), None)


def parsed(picture: Picture) -> ElementTree.Element:
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == f"{SVG}svg"
    assert root.find(f".//{SVG}script") is None
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_a_bar_chart_has_a_bar_per_row_with_its_value() -> None:
    root = parsed(result(city=pa.array(["Ulm", "Bonn", None]), n=pa.array([10, 40, None])).chart())
    bars = [float(bar.get("width", "")) for bar in root.iter(f"{SVG}rect")]
    assert bars[1] == pytest.approx(4 * bars[0], abs=0.3)
    assert bars[2] == 0
    assert {"city", "n", "Ulm", "Bonn", "10", "40", "null"} <= set(texts(root))


def test_negative_bars_go_to_the_left_of_zero() -> None:
    root = parsed(result(a=pa.array(["x", "y"]), n=pa.array([-5, 5])).chart())
    left, right = root.iter(f"{SVG}rect")
    end = float(left.get("x", "")) + float(left.get("width", ""))
    assert end == pytest.approx(float(right.get("x", "")), abs=0.2)


def test_a_bar_chart_is_bounded_and_says_so() -> None:
    root = parsed(result(a=pa.array([f"x{i}" for i in range(1_050)]), n=pa.array(range(1_050))).chart())
    assert len(list(root.iter(f"{SVG}rect"))) == 50
    assert "… 1,000 more" in texts(root)


def test_a_line_chart_sorts_its_points() -> None:
    days = [dt.date(2024, 3, 1), dt.date(2024, 1, 1), None, dt.date(2024, 2, 1)]
    root = parsed(result(day=pa.array(days), n=pa.array([3.0, 1.0, 9.0, float("nan")])).chart())
    (line,) = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    assert len(points) == 2
    assert points[0][0] < points[1][0]
    assert points[0][1] > points[1][1]


def test_a_long_line_keeps_its_extremes() -> None:
    values = np.zeros(100_000)
    values[77_777] = 5.0
    root = parsed(result(x=pa.array(range(100_000)), y=pa.array(values)).chart())
    (line,) = root.iter(f"{SVG}polyline")
    heights = [float(point.split(",")[1]) for point in line.get("points", "").split()]
    assert len(heights) <= 2 * 640
    assert min(heights) < max(heights) - 100


def test_charts_of_hardly_any_points() -> None:
    none = pa.array([], pa.int64())
    assert "no values of y by x" in texts(parsed(result(x=none, y=none).chart()))
    assert list(parsed(result(x=pa.array([1]), y=pa.array([2.5])).chart()).iter(f"{SVG}circle"))
    assert parsed(result(a=pa.array([], pa.utf8()), n=pa.array([], pa.int64())).chart()) is not None


def test_a_chart_names_what_is_wrong() -> None:
    made = result(name=pa.array(["a"]), n=pa.array([1]))
    with pytest.raises(InputError, match="there is no column 'nam'") as caught:
        made.chart("nam")
    assert "did you mean 'name'" in str(caught.value.hint)
    calls: list[tuple[Callable[[], Picture], str]] = [
        (lambda: made.chart(y="name"), "column 'name' has no numbers"),
        (lambda: made.chart(kind="pie"), "'pie' is not a kind of chart"),
        (lambda: made.chart(kind="line"), "no place on a line"),
        (lambda: result(n=pa.array([1])).chart(), "a chart needs two columns"),
        (lambda: result(a=pa.array(["x"]), b=pa.array(["y"])).chart(), "no column of numbers beside 'a'"),
    ]
    for call, message in calls:
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 17.0), (1e9, 1e9 + 3), (0.001, 0.0011), (5.0, 5.0)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-9 * abs(low) <= tick <= high + 1e-9 * abs(high) for tick in found)
    assert found == sorted(set(found))


def test_pictures_escape_every_text() -> None:
    root = parsed(result(**{NASTY: pa.array([NASTY]), "n<": pa.array([1])}).chart())
    assert any(text.startswith("<script>alert('&')") for text in texts(root))


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv(FSYNC.name, "0")
    schema = "node Person { name: String @key } node Boat { name: String @key } "
    opened = omnigraph.init(tmp_path / "g", schema + "edge Knows: Person -> Person edge Owns: Person -> Boat")
    people = [{"name": f"p{i}"} for i in range(30)] + [{"name": NASTY.replace("\x00", "")}]
    knows = [{"from": "p0", "to": f"p{i}"} for i in range(1, 9)] + [{"from": "p3", "to": "p3"}]
    rows = {"Person": people, "Boat": [{"name": "argo"}], "Knows": knows, "Owns": [{"from": "p0", "to": "argo"}]}
    opened.load(rows, mode="append")
    return opened


def nodes_of(root: ElementTree.Element) -> list[str]:
    titles = (circle.findtext(f"{SVG}title") for circle in root.iter(f"{SVG}circle"))
    return [title.split("\n")[0] for title in titles if title]


def test_a_graph_is_drawn_with_its_nodes_and_edges(graph: Graph) -> None:
    root = parsed(graph.draw())
    assert len(nodes_of(root)) == 32
    assert root.findtext(f"{SVG}title") == "32 nodes and 10 edges"
    assert {"Person", "Boat"} <= set(texts(root))
    assert graph.draw().svg == graph.draw().svg


def test_a_limited_drawing_prefers_connected_nodes(graph: Graph) -> None:
    root = parsed(graph.draw(limit=5))
    assert "Person p0" in nodes_of(root)
    assert len(nodes_of(root)) == 5
    assert "the first 5 nodes" in texts(root)
    assert len([path for path in root.iter(f"{SVG}path") if path.get("marker-end")]) >= 4


def test_types_select_what_is_drawn(graph: Graph) -> None:
    assert nodes_of(parsed(graph.draw("Boat"))) == ["Boat argo"]
    assert {one.split()[0] for one in nodes_of(parsed(graph.draw("Owns", limit=3)))} == {"Person", "Boat"}
    with pytest.raises(InputError, match="there is no type 'Bot'"):
        graph.draw("Bot")


@pytest.mark.parametrize("limit", [0, 501, True, "9", None])
def test_the_limit_is_checked(graph: Graph, limit: object) -> None:
    with pytest.raises(InputError, match="limit must be a whole number from 1 to 500"):
        graph.draw(limit=limit)  # type: ignore[arg-type]


def test_a_result_is_drawn(graph: Graph) -> None:
    asked = graph.query("query q() { match { $a: Person  $a knows $b } return { $a.id as a, $b.id as b } }")
    root = parsed(asked.draw())
    assert len(nodes_of(root)) == 9
    assert len(nodes_of(parsed(asked.draw(limit=3)))) == 3
    empty = graph.query('query q() { match { $a: Person { name: "zoe" } } return { $a.id as a } }')
    assert "no nodes" in texts(parsed(empty.draw()))
    with pytest.raises(InputError, match="no column with node ids"):
        graph.query("query q() { match { $a: Person } return { count(*) as n } }").draw()


def test_a_picture_is_saved(graph: Graph, tmp_path: Path) -> None:
    picture = graph.draw("Boat")
    picture.save(tmp_path / "boat.svg")
    assert (tmp_path / "boat.svg").read_text() == f"{picture.svg}\n"
    assert picture._repr_svg_() == str(picture) == picture.svg
    with pytest.raises(InputError, match="cannot write"):
        picture.save(tmp_path / "missing" / "boat.svg")


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_a_layout_stays_in_the_picture_and_separates_nodes(count: int) -> None:
    places = layout(count, [(0, i) for i in range(count)])
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    assert (places >= 0).all()
    assert (places <= [640, 440]).all()
    apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(2))[~np.eye(count, dtype=bool)]
    assert count == 1 or apart.min() > 2
