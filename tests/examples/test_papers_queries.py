"""The example queries follow the grammar, have descriptions, and cover the whole query language."""

import re
from pathlib import Path

import pytest

from omnigraph.lang.query.check import check_query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import Catalog

READS = [
    r"or ",
    r"and ",
    r"not \(",
    r"not \{",
    r"not \{([^{}]|\{[^{}]*\})*not \{",
    r"not in \[",
    r" in \$",
    r"is null",
    r"is not null",
    r"starts_with",
    r"ends_with",
    r"contains",
    r"matches",
    r"!= \$",
    r"optional \{",
    r"\$_ ",
    r"\{1,3\}",
    r"\{1,\}",
    r"<cites>",
    r"\(cites \| replaces\)",
    r"<\(cites \| replaces\)>",
    r":\(\*\)",
    r"shortest \$",
    r"nodes\(",
    r"edges\(",
    r": Named",
    r"type\(",
    r"\.id\b",
    r"\.from\b",
    r"\.\*",
    r"search\(.*all=true",
    r"match_text\(",
    r"fuzzy\(",
    r"bm25\(.*as ",
    r"nearest\(.*as ",
    r"rrf\(.*\* [0-9.]+.*,.*,.*[0-9]\)",
    r"return distinct",
    r"count\(\*\)",
    r"count\(distinct",
    r"collect\(",
    r"sum\(",
    r"avg\(",
    r"min\(",
    r"max\(",
    r"having \{",
    r"date_diff\(",
    r"date_add\(",
    r"year\(",
    r"month\(",
    r"day\(",
    r"now\(\)",
    r"lower\(",
    r"upper\(",
    r"trim\(",
    r"length\(",
    r"coalesce\(",
    r"abs\(",
    r"round\(",
    r"floor\(",
    r"ceil\(",
    r" % ",
    r"[0-9]e-?[0-9]",
    r"-[0-9]",
    r": Paper\.status",
    r": I64 = ",
    r'= date\("',
    r'= datetime\("',
    r"String\?",
    r": \[String\]",
    r": Vector\(64\)",
    r"limit \$",
    r"offset \$",
    r"nulls last",
    r"nulls first",
]
WRITES = [
    r"insert [A-Z]",
    r"insert edge",
    r"insert node",
    r"create ",
    r"merge ",
    r"update Paper",
    r"update AffiliatedWith",
    r"delete Paper",
    r"delete Uses",
    r"where .* and .*\(.* or ",
    r"not \(",
    r" in \[",
    r"is null",
    r"contains",
    r": now\(\)",
    r": null",
    r": Blob",
]


@pytest.mark.parametrize(("file", "least"), [("queries.gq", 25), ("mutations.gq", 10)])
def test_every_query_parses_and_has_a_unique_name_and_a_description(folder: Path, file: str, least: int) -> None:
    queries = parse_queries((folder / file).read_text(encoding="utf-8"), file).queries
    assert len(queries) >= least
    assert len({query.name for query in queries}) == len(queries)
    assert all(query.description for query in queries)


@pytest.mark.parametrize("file", ["queries.gq", "mutations.gq"])
def test_every_query_fits_the_schema(catalog: Catalog, folder: Path, file: str) -> None:
    for query in parse_queries((folder / file).read_text(encoding="utf-8"), file).queries:
        assert check_query(query, catalog).name == query.name


@pytest.mark.parametrize(
    ("file", "construct"), [*(("queries.gq", text) for text in READS), *(("mutations.gq", text) for text in WRITES)]
)
def test_the_example_queries_use_every_construct(folder: Path, file: str, construct: str) -> None:
    code = re.sub(r'//.*|"[^"]*"', '""', (folder / file).read_text(encoding="utf-8"))
    assert re.search(construct, code)
