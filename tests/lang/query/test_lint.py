"""The lint report: its members, its counts, and the conditions of each finding."""

from __future__ import annotations

import json

import pytest
from tests.lang.fixtures import nursery

from omnigraph.lang.query import lint_queries
from omnigraph.lang.schema import Catalog, compile_schema

READ = "query fine() { match { $s: Species } return { $s.taxon } }\n"
BROKEN = "query broken() { match { $s: Specis } return { $s.taxon } }\n"
WRITE = "query change($p: String) { update Curator set { email: $p, active: true } where badge = $p }\n"
SOURCE = {"kind": "file", "path": "schema.pg"}


def report(text: str, catalog: Catalog | None = None) -> dict[str, object]:
    made = lint_queries(text, catalog or nursery(), "queries.gq").to_json(SOURCE, "queries.gq")
    assert json.loads(json.dumps(made)) == made
    return made


def findings(text: str, catalog: Catalog | None = None) -> list[tuple[str, str | None, str | None, tuple[str, ...]]]:
    made = lint_queries(text, catalog or nursery()).findings
    return [(f.code, f.type_name, f.property, f.query_names) for f in made]


# ---- the report


def test_report_of_a_clean_file() -> None:
    assert report(READ) == {
        "status": "ok",
        "schema_source": SOURCE,
        "query_path": "queries.gq",
        "queries_processed": 1,
        "errors": 0,
        "warnings": 0,
        "infos": 0,
        "results": [
            {
                "name": "fine",
                "kind": "read",
                "status": "ok",
                "operation": {
                    "result": [{"name": "s.taxon", "kind": "string", "nullable": False}],
                    "reads": [{"kind": "node", "type_name": "Species"}],
                    "writes": [],
                },
            }
        ],
        "findings": [],
    }


def test_report_of_an_empty_file() -> None:
    made = report("// nothing\n")
    assert (made["status"], made["queries_processed"], made["results"], made["findings"]) == ("ok", 0, [], [])


def test_a_file_that_does_not_parse_is_one_finding() -> None:
    made = report(READ + "query half(")
    assert made["status"] == "error"
    assert (made["queries_processed"], made["results"]) == (0, [])
    assert (made["errors"], made["warnings"], made["infos"]) == (1, 0, 0)
    assert made["findings"] == [
        {
            "severity": "error",
            "code": "Q000",
            "message": "expected a parameter ($name: Type), found the end of the text",
        }
    ]


def test_an_error_of_one_query_does_not_hide_the_others() -> None:
    made = lint_queries(READ + BROKEN + BROKEN.replace("broken", "other") + WRITE, nursery())
    assert [result.status for result in made.results] == ["ok", "error", "error", "ok"]
    assert [result.operation is not None for result in made.results] == [True, False, False, True]
    assert made.errors == 2
    assert made.status == "error"


def test_only_the_first_error_of_a_query_is_reported() -> None:
    (result,) = lint_queries("query q() { match { $s: Specis } return { $s.nothing, $t } }", nursery()).results
    assert result.error is not None
    assert result.error.diagnostic == "T1"


def test_an_error_is_rendered_with_its_family_and_code() -> None:
    results = report(BROKEN)["results"]
    assert results == [
        {"name": "broken", "kind": "read", "status": "error", "error": "type error: T1: there is no node type Specis"}
    ]


def test_results_are_in_source_order() -> None:
    text = READ.replace("fine", "zebra") + READ.replace("fine", "ant") + WRITE
    assert [result.name for result in lint_queries(text, nursery()).results] == ["zebra", "ant", "change"]
    assert [result.kind for result in lint_queries(text, nursery()).results] == ["read", "read", "mutation"]


def test_counts_add_up() -> None:
    text = BROKEN + "query hard() { delete Knows where since is null }\n" + READ.replace("}\n", "limit 3 }\n")
    made = lint_queries(text, nursery())
    assert made.errors == 1
    assert made.warnings == 2  # the hard-coded write, and the limit without an order
    assert made.infos == 0
    infos = lint_queries("query q() { match { $s: Species  $s.frost_min > 3 } return { $s } }", nursery())
    assert (infos.errors, infos.warnings, infos.infos, infos.status) == (0, 0, 1, "ok")


def test_findings_are_sorted_by_severity_type_property_and_message() -> None:
    text = (
        'query b($u: String) { match { $s: Species { notes: "x" } } return { $s } limit 1 }\n'
        'query a() { update Curator set { name: "x" } where badge = "y" }\n'
        "query c() { match { $a: Accession { grams: 1, price: 2 } } return { $a } }\n"
    )
    made = lint_queries(text, nursery()).findings
    order = [(f.severity.value, f.type_name or "", f.property or "", f.message) for f in made]
    ranks = {"error": 0, "warning": 1, "info": 2}
    assert order == sorted(order, key=lambda row: (ranks[row[0]], *row[1:]))
    assert [f.code for f in made] == ["L205", "L202", "L201", "L201", "L206", "L206", "L206"]


# ---- hard-coded writes


def test_a_mutation_without_parameters_is_warned_about() -> None:
    (result,) = lint_queries("query q() { delete Knows where since is null }", nursery()).results
    assert result.warnings == ("the mutation has no parameters, so it always writes the same values",)
    made = report("query q() { delete Knows where since is null }")
    assert made["warnings"] == 1
    assert made["findings"] == []


def test_a_read_without_parameters_is_not_warned_about() -> None:
    (result,) = lint_queries(READ, nursery()).results
    assert result.warnings == ()


# ---- L201


def test_l201_names_the_updates_of_the_type_in_name_order() -> None:
    text = (
        "query zeta($p: String) { update Curator set { name: $p } where badge = $p }\n"
        "query alpha($p: String) { update Curator set { name: $p } where badge = $p }\n"
        "query other($p: String) { update Garden set { area: 1, opened: now() } where code = $p }\n"
    )
    assert findings(text) == [
        ("L201", "Curator", "active", ("alpha", "zeta")),
        ("L201", "Curator", "email", ("alpha", "zeta")),
    ]


@pytest.mark.parametrize(
    "text",
    [
        # some update sets each property
        "query a($p: String) { update Curator set { email: $p } where badge = $p }"
        "query b($p: String) { update Curator set { active: true } where badge = $p }",
        # in one query
        "query a($p: String) { update Curator set { email: $p } where badge = $p"
        " update Curator set { active: true } where badge = $p }",
        # nothing updates the type
        "query a($p: String) { insert Curator { badge: $p, name: $p } }",
        "query a($p: String) { merge Curator { badge: $p, name: $p } }",
        "query a($p: String) { delete Curator where badge = $p }",
        # required properties, keys and embedded vectors need no update
        "query a($p: String) { update Note set { text: $p, moods: [] } where text = $p }",
        # edges are not looked at
        "query a($p: String) { update GrownIn set { bed: $p } where from = $p }",
    ],
)
def test_l201_is_not_reported_without_a_reason(text: str) -> None:
    assert [finding for finding in findings(text) if finding[0] == "L201"] == []


def test_l201_considers_valid_queries_only() -> None:
    invalid = "query a($p: String) { update Curator set { email: $p, active: 3 } where badge = $p }\n"
    assert findings(invalid) == []
    valid = "query b($p: String) { update Curator set { name: $p } where badge = $p }\n"
    assert [finding[:3] for finding in findings(invalid + valid)] == [
        ("L201", "Curator", "active"),
        ("L201", "Curator", "email"),
    ]


def test_l201_message_and_json() -> None:
    made = report("query a($p: String) { update Curator set { email: $p } where badge = $p }")
    assert made["findings"] == [
        {
            "severity": "warning",
            "code": "L201",
            "message": "no update of Curator sets active",
            "type_name": "Curator",
            "property": "active",
            "query_names": ["a"],
        }
    ]


# ---- @allow

ALLOWING = """
node A {allow_type} {{ k: String @key  x: I64? {allow_property}  y: I64? }}
edge E: A -> A {allow_edge} {{ n: I64? @default(3) }}
"""
UPDATE = "query q($p: String) { update A set { y: 1 } where k = $p }"
SEARCH = "query q() { match { $a: A { x: 1 } } return { $a } }"
INSERT = "query q($p: String) { insert E { from: $p, to: $p, n: 3 } }"


def _schema(allow_type: str = "", allow_property: str = "", allow_edge: str = "") -> Catalog:
    text = ALLOWING.format(allow_type=allow_type, allow_property=allow_property, allow_edge=allow_edge)
    return compile_schema(text)


@pytest.mark.parametrize(("text", "code"), [(UPDATE, "L201"), (SEARCH, "L206"), (INSERT, "L209")])
def test_a_finding_is_reported_without_allow(text: str, code: str) -> None:
    assert [finding[0] for finding in findings(text, _schema())] == [code]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        (UPDATE, _schema(allow_type='@allow(L201, "never changes")')),
        (UPDATE, _schema(allow_property='@allow(L201, "never changes")')),
        (SEARCH, _schema(allow_property='@allow(L206, "a small table")')),
        (INSERT, _schema(allow_edge='@allow(L209, "said twice on purpose")')),
    ],
)
def test_allow_accepts_a_finding(text: str, schema: Catalog) -> None:
    assert findings(text, schema) == []


def test_allow_accepts_its_own_code_only() -> None:
    schema = _schema(allow_type='@allow(L206, "a small table")')
    assert [finding[0] for finding in findings(UPDATE, schema)] == ["L201"]


def test_allow_applies_to_its_own_declaration_only() -> None:
    """A node type and an edge type can share a name; @allow of one does not apply to the other."""
    schema = compile_schema(
        'node A { k: String @key } node E @allow(L209, "x") { k: String @key } edge E: A -> A { n: I64? @default(3) }'
    )
    text = "query q($p: String) { insert edge E { from: $p, to: $p, n: 3 } }"
    assert [finding[0] for finding in findings(text, schema)] == ["L209"]


# ---- findings about one query


def test_findings_have_exact_spans() -> None:
    text = "query q($u: String) { match { $a: Accession  $a isA{2,3} $x } return { $a } limit 3 }"
    made = lint_queries(text, nursery()).findings
    shown = {f.code: text[f.span.start : f.span.end] for f in made if f.span is not None}
    assert shown == {"L202": "$u: String", "L203": "$a isA{2,3} $x", "L205": "3", "L207": "$a isA{2,3} $x"}


def test_hop_ranges_from_an_interface_are_unreachable_beyond_one_hop() -> None:
    """The variable may be at either end of the edge, but its walks do not turn around."""
    schema = compile_schema(
        "interface Named { name: String? } node P implements Named { } node Q implements Named { } edge Likes: P -> Q"
    )
    for hops, expected in (("{1,1}", []), ("{1,2}", ["L215"]), ("{1,}", ["L215"]), ("{2,3}", ["L207"])):
        text = f"query q() {{ match {{ $x: Named  $x likes{hops} $y }} return {{ $x, $y }} }}"
        assert [finding[0] for finding in findings(text, schema)] == expected, hops


def test_alternatives_that_allow_one_hop_only_are_reported() -> None:
    schema = compile_schema(
        "interface Named { name: String? } node P implements Named { } node Q implements Named { } "
        "edge Likes: P -> Q  edge Hates: Q -> P"
    )
    for hops, expected in (("{1,1}", []), ("{1,2}", ["L215"]), ("{1,}", ["L215"]), ("{2,3}", ["L207"])):
        text = f"query q() {{ match {{ $x: Named  $x (likes | hates){hops} $y }} return {{ $x, $y }} }}"
        assert [finding[0] for finding in findings(text, schema)] == expected, hops


def test_l204_sees_through_optional_blocks() -> None:
    clauses = "$s: Species  optional { $a isA $s }  optional { $a grownIn $g }  $c curates $g"
    text = f"query q() {{ match {{ {clauses} }} return {{ $s, $c }} }}"
    assert [finding[0] for finding in findings(text) if finding[0] == "L204"] == []


def test_l204_counts_a_shared_filter_as_a_connection() -> None:
    joined = "query q() { match { $s: Species  $g: Garden  $s.label = $g.label } return { $s, $g } }"
    assert findings(joined) == []


def test_l204_is_not_reported_for_single_rows() -> None:
    one = (
        '$a: Species { taxon: "x" }',
        "$a: Species  $a.id = $p",
        "$a: Accession  $a.garden_code = $p and 3 = $a.serial",
    )
    many = ("$a: Accession { serial: 3 }", '$a: Species  $a.taxon != "x"', '$a: Species { label: "x" }')
    for clauses in (*one, *many):
        text = f'query q($p: String = "x") {{ match {{ {clauses}  $g: Garden }} return {{ $a, $g, $p }} }}'
        codes = [finding[0] for finding in findings(text)]
        assert ("L204" in codes) is (clauses in many), clauses


def test_l204_is_reported_for_the_remaining_unconnected_variables() -> None:
    text = 'query q() { match { $a: Species { taxon: "x" }  $g: Garden  $c: Curator } return { $a, $g, $c } }'
    assert "L204" in [finding[0] for finding in findings(text)]


def test_l208_considers_null_in_filters() -> None:
    keeps = (
        "$a is null",
        "$a.serial is null or $a.serial > 3",
        "coalesce($a.serial, 0) > 3",
        "($a.serial is null) = true",
    )
    drops = ("$a is not null", "$a.serial > 3", "$a.serial in [1]", "$a: Accession", "$a grownIn $_")
    for clause in (*keeps, *drops):
        text = f"query q() {{ match {{ $s: Species  optional {{ $a isA $s }}  {clause} }} return {{ $s, $a }} }}"
        codes = [finding[0] for finding in findings(text)]
        assert ("L208" in codes) is (clause in drops), clause


def test_l206_distinguishes_variables_of_different_blocks() -> None:
    text = (
        "query q() { match { $g: Garden  not { $x grownIn $g  $x.grams = 1 }  not { $x curates $g  $x.active = true } }"
        " return { $g } }"
    )
    assert [finding[:3] for finding in findings(text)] == [
        ("L206", "Accession", "grams"),
        ("L206", "Curator", "active"),
    ]


def test_l206_distinguishes_an_edge_type_from_a_node_type_of_the_same_name() -> None:
    on_edge = 'query q() { match { $c $e:visit $g  $e.day = date("2026-03-14") } return { $c, $g } }'
    assert [finding[:3] for finding in findings(on_edge)] == [("L206", "Visit", "day")]
    on_node = 'query q() { match { $v: Visit { day: date("2026-03-14") } } return { $v } }'
    assert findings(on_node) == []


def test_l206_considers_the_indexes_of_a_key() -> None:
    for served in ('$s.taxon = "x"', '$s.taxon starts_with "x"', 'search($s.taxon, "x")'):
        assert findings(f"query q() {{ match {{ $s: Species  {served} }} return {{ $s }} }}") == []
