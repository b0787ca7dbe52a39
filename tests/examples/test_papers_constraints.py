"""Every constraint of the example schema holds in a generated library."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import Cardinality, Check, Constraint, EdgeType, Key, NodeType, Range, Unique
from papers import EDGES, NODES, TYPES

Tables = dict[str, pa.Table]


def declaration(catalog: Catalog, name: str) -> NodeType | EdgeType:
    return catalog.nodes[name] if name in NODES else catalog.edges[name]


def ids(catalog: Catalog, tables: Tables, name: str) -> pa.ChunkedArray:
    """The ids of a node type's rows."""
    key = catalog.nodes[name].key
    if key is None:
        return tables[name]["id"]
    members = [tables[name][member].cast(pa.string()) for member in key]
    if len(members) == 1:
        return members[0]
    return pc.binary_join_element_wise('["', pc.binary_join_element_wise(*members, '","'), '"]', "")


def columns(table: pa.Table, fields: Sequence[str]) -> pa.Table:
    physical = {"src": "from", "dst": "to"}
    return table.select([physical.get(field, field) for field in fields])


def repeated(table: pa.Table) -> int:
    """The number of duplicate rows; rows with a null do not count."""
    whole = table.drop_null()
    return int(whole.num_rows - whole.group_by(whole.column_names).aggregate([]).num_rows)


def constraints(catalog: Catalog, name: str, kind: type[Constraint]) -> list[Constraint]:
    return [c for c in declaration(catalog, name).constraints if isinstance(c, kind)]


@pytest.mark.parametrize("name", TYPES)
def test_only_optional_values_are_sometimes_null(tables: Tables, name: str) -> None:
    for field in TYPES[name]:
        nulls = tables[name][field.name].null_count
        if field.nullable:
            assert nulls > 0, field.name
        else:
            assert nulls == 0, field.name


@pytest.mark.parametrize("name", TYPES)
def test_enum_values_are_allowed_and_all_occur(catalog: Catalog, tables: Tables, name: str) -> None:
    for property_ in declaration(catalog, name).properties.values():
        if property_.type.enum_values is None:
            continue
        column = tables[name][property_.name]
        values = pc.list_flatten(column) if property_.type.list else column
        found = set(pc.unique(values.drop_null()).to_pylist())
        assert found <= set(property_.type.enum_values), property_.name
        assert found == set(property_.type.enum_values) or len(values) < 100, property_.name


@pytest.mark.parametrize("name", TYPES)
def test_ranges_and_patterns_hold(catalog: Catalog, tables: Tables, name: str) -> None:
    for constraint in constraints(catalog, name, Range):
        assert isinstance(constraint, Range)
        bounds = pc.min_max(tables[name][constraint.property]).as_py()
        assert constraint.min is None or bounds["min"] >= constraint.min, constraint
        assert constraint.max is None or bounds["max"] <= constraint.max, constraint
    for constraint in constraints(catalog, name, Check):
        assert isinstance(constraint, Check)
        values = tables[name][constraint.property].drop_null()
        assert pc.all(pc.match_substring_regex(values, constraint.pattern), min_count=0).as_py(), constraint


@pytest.mark.parametrize("name", TYPES)
def test_keys_and_unique_groups_have_no_duplicates(catalog: Catalog, tables: Tables, name: str) -> None:
    for constraint in [*constraints(catalog, name, Key), *constraints(catalog, name, Unique)]:
        assert isinstance(constraint, Key | Unique)
        assert repeated(columns(tables[name], constraint.fields)) == 0, constraint


def test_ids_of_the_type_without_a_key_are_unique(tables: Tables) -> None:
    assert repeated(tables["Note"].select(["id"])) == 0


@pytest.mark.parametrize("name", EDGES)
def test_endpoints_exist(catalog: Catalog, tables: Tables, name: str) -> None:
    edge = catalog.edges[name]
    for end, node in (("from", edge.from_type), ("to", edge.to_type)):
        known = ids(catalog, tables, node).combine_chunks()
        assert pc.all(pc.is_in(tables[name][end], known)).as_py(), f"{end} is a {node}"


@pytest.mark.parametrize("name", EDGES)
def test_cardinalities_hold_for_every_node(catalog: Catalog, tables: Tables, name: str) -> None:
    edge = catalog.edges[name]
    for end, node, bounds in (("from", edge.from_type, edge.card), ("to", edge.to_type, edge.card_in)):
        if bounds == Cardinality():
            continue
        counts = tables[name].group_by(end).aggregate([([], "count_all")])
        assert bounds.max is None or pc.max(counts["count_all"]).as_py() <= bounds.max
        if bounds.min:
            # Stricter than the rule, which ignores nodes without such an edge.
            assert counts.num_rows == tables[node].num_rows
            assert pc.min(counts["count_all"]).as_py() >= bounds.min


def test_dates_are_in_chronological_order(tables: Tables) -> None:
    for name in ("AffiliatedWith", "Advises"):
        ended = tables[name].filter(pc.is_valid(tables[name]["until"]))
        assert pc.all(pc.less(ended["since"], ended["until"])).as_py(), name
    papers = tables["Paper"]
    published = papers["published"].cast(pa.timestamp("ms", "UTC"))
    assert pc.all(pc.less(papers["submitted_at"], published)).as_py()
    dated = pc.is_valid(papers["published"])
    appeared = pc.is_in(papers["status"], pa.array(["published", "retracted"]))
    assert dated.equals(appeared)


def test_papers_cite_earlier_papers(tables: Tables) -> None:
    order = {doi: place for place, doi in enumerate(tables["Paper"]["doi"].to_pylist())}
    citing = np.array([order[doi] for doi in tables["Cites"]["from"].to_pylist()])
    cited = np.array([order[doi] for doi in tables["Cites"]["to"].to_pylist()])
    assert (cited < citing).all()


def test_parallel_edges_occur_where_they_are_allowed(tables: Tables) -> None:
    assert repeated(tables["Uses"].select(["from", "to"])) > 0
    assert repeated(tables["AffiliatedWith"].select(["from", "to"])) > 0
    assert repeated(tables["Reviewed"].select(["from", "to"])) > 0
