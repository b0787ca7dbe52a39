"""Pictures of a few nodes and edges. The same nodes and edges give the same picture."""

from __future__ import annotations

import math

import numpy as np

from omnigraph.errors import InputError, shown
from omnigraph.read.result.network import Entities, NodeKey
from omnigraph.read.result.picture import COLORS, Picture, label, number, svg, text_content

MOST_NODES = 500
"""The largest limit of nodes. The layout compares all pairs of nodes."""

_WIDTH, _HEIGHT, _MARGIN, _LEGEND = 640, 440, 48, 24
_RADIUS = 9.0
_ROUNDS = 120
_MOST_EDGE_LABELS = 30
_NAMES = ("name", "title", "label")

Points = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def check_limit(limit: int) -> None:
    """Check the maximum number of nodes of a picture.

    Raises:
        InputError: it is not a whole number from 1 to `MOST_NODES`.
    """
    given: object = limit
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_NODES:
        raise InputError(f"limit must be a whole number from 1 to {MOST_NODES}, not {shown(given)}")


def draw(found: Entities) -> Picture:
    """Draw nodes as circles in the color of their type, and edges as arrows."""
    keys = list(found.nodes)
    if not keys:
        return svg(_WIDTH, 40, "an empty graph", label(16, 24, "no nodes"))
    number_of = {key: i for i, key in enumerate(keys)}
    pairs = [(number_of[source], number_of[target]) for source, target, _ in found.edges]
    places: list[tuple[float, float]] = [(float(x), float(y)) for x, y in layout(len(keys), pairs)]
    types = sorted({type_name for type_name, _ in keys})
    color = {name: COLORS[i % len(COLORS)] for i, name in enumerate(types)}
    parts = [_ARROW]
    with_labels = len(found.edges) <= _MOST_EDGE_LABELS
    edge_types = {key[0] for _, _, key in found.edges}
    for (source, target), (_, _, key) in zip(pairs, found.edges, strict=True):
        parts += _edge(places[source], places[target], key[0], labelled=with_labels and len(edge_types) > 1)
    for key, (x, y) in zip(keys, places, strict=True):
        parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(_RADIUS)}" fill="{color[key[0]]}">'
            f"<title>{text_content(_described(key, found))}</title></circle>"
        )
        parts.append(label(x, y + _RADIUS + 12, _name(key, found), anchor="middle", most=18))
    parts += _legend(types, color, edge_types)
    if not found.is_complete:
        parts.append(
            label(_WIDTH - 8, _HEIGHT - 8, f"the first {len(keys)} nodes", anchor="end", extra=' fill-opacity="0.7"')
        )
    title = f"{len(keys)} nodes and {len(pairs)} edges"
    return svg(_WIDTH, _HEIGHT, title, *parts)


_ARROW = (
    '<defs><marker id="omnigraph-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="currentColor" fill-opacity="0.6"/></marker></defs>'
)
_STROKE = 'stroke="currentColor" stroke-opacity="0.45" fill="none" marker-end="url(#omnigraph-arrow)"'


def _edge(source: tuple[float, float], target: tuple[float, float], type_name: str, *, labelled: bool) -> list[str]:
    (x1, y1), (x2, y2) = source, target
    distance = math.hypot(x2 - x1, y2 - y1)
    title = f"<title>{text_content(type_name)}</title>"
    if distance < 1:  # an edge from a node to itself
        r = _RADIUS
        path = f"M{number(x1 - r / 2)} {number(y1 - r)} C{number(x1 - 3 * r)} {number(y1 - 4 * r)} "
        path += f"{number(x1 + 3 * r)} {number(y1 - 4 * r)} {number(x1 + r / 2)} {number(y1 - r)}"
        return [f'<path d="{path}" {_STROKE}>{title}</path>']
    dx, dy = (x2 - x1) / distance, (y2 - y1) / distance
    x1, y1, x2, y2 = x1 + dx * _RADIUS, y1 + dy * _RADIUS, x2 - dx * _RADIUS, y2 - dy * _RADIUS
    bend = 0.08 * distance  # edges in both directions have different curves
    cx, cy = (x1 + x2) / 2 - dy * bend, (y1 + y2) / 2 + dx * bend
    path = f"M{number(x1)} {number(y1)} Q{number(cx)} {number(cy)} {number(x2)} {number(y2)}"
    parts = [f'<path d="{path}" {_STROKE}>{title}</path>']
    if labelled:
        at = (x1 + 2 * cx + x2) / 4, (y1 + 2 * cy + y2) / 4 - 2
        parts.append(label(*at, type_name, anchor="middle", most=16, extra=' font-size="9" fill-opacity="0.7"'))
    return parts


def _legend(types: list[str], color: dict[str, str], edge_types: set[str]) -> list[str]:
    parts, x = [], 12.0
    for name in types:
        parts.append(f'<circle cx="{number(x)}" cy="12" r="5" fill="{color[name]}"/>')
        parts.append(label(x + 9, 16, name, most=20))
        x += 30 + 7 * min(20, len(name))
        if x > _WIDTH - 120:
            break
    if len(edge_types) == 1:
        parts.append(label(_WIDTH - 8, 16, f"→ {min(edge_types)}", anchor="end", extra=' fill-opacity="0.7"'))
    return parts


def _name(key: NodeKey, found: Entities) -> str:
    """The text below a node: a property such as `name`, or else the id."""
    values = found.nodes[key]
    return next((str(values[name]) for name in _NAMES if values.get(name) is not None), key[1])


def _described(key: NodeKey, found: Entities) -> str:
    type_name, entity_id = key
    values = (f"{name}: {shown(value)}" for name, value in found.nodes[key].items() if value is not None)
    return "\n".join([f"{type_name} {entity_id}", *values])


def layout(count: int, pairs: list[tuple[int, int]]) -> Points:
    """Places of nodes in the picture, by forces: nodes repel each other, and edges pull their ends together.

    The method is that of Fruchterman and Reingold, 1991. It starts on a spiral, so the result is always the same.
    """
    numbers = np.arange(count)
    angle = numbers * math.pi * (3 - math.sqrt(5))
    places: Points = np.sqrt((numbers + 0.5) / count)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    if count > 1:
        ends = np.array([pair for pair in pairs if pair[0] != pair[1]], np.int64).reshape(-1, 2)
        ideal = 1.6 / math.sqrt(count)
        for step in range(_ROUNDS):
            between = places[:, None, :] - places[None, :, :]
            distance = np.maximum(np.sqrt((between**2).sum(2)), 1e-3)
            push = (between * (ideal**2 / distance**2)[:, :, None]).sum(1)
            if len(ends):
                apart = places[ends[:, 0]] - places[ends[:, 1]]
                pull = apart * (np.sqrt((apart**2).sum(1)) / ideal)[:, None]
                np.subtract.at(push, ends[:, 0], pull)
                np.add.at(push, ends[:, 1], pull)
            push -= places * 0.6  # keeps parts that are not connected close to each other
            length = np.maximum(np.sqrt((push**2).sum(1)), 1e-9)
            heat = 0.15 * (1 - step / _ROUNDS) + 0.002
            places = places + push * (np.minimum(length, heat) / length)[:, None]
    low, high = places.min(0), places.max(0)
    span = np.where(high - low > 1e-9, high - low, 1.0)
    room = np.array([_WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN - _LEGEND])
    corner = np.array([_MARGIN, _MARGIN + _LEGEND / 2])
    scaled: Points = corner + np.where(high - low > 1e-9, (places - low) / span, 0.5) * room
    return scaled
