"""Hints for the syntax of other languages: what a word of SQL, Cypher or Gremlin is called here."""

from __future__ import annotations

EXAMPLE = "a query looks like this: query adults() { match { $p: Person  $p.age > 17 } return { $p.name } }"

OTHER_TYPES = dict.fromkeys(("int", "integer", "long", "bigint"), "I64") | {
    **dict.fromkeys(("float", "double", "number"), "F64"),
    **dict.fromkeys(("text", "varchar", "str"), "String"),
    **dict.fromkeys(("bytes", "binary"), "Blob"),
    "timestamp": "DateTime",
}
"""Names of scalar types in other languages."""

OTHER_STATEMENTS = {"upsert": "insert", "set": "update", "remove": "delete", "replace": "insert", "add": "insert"}
"""Names of statements in other languages."""

AFTER_MATCH = {
    "where": "write the condition into 'match { … }'; it needs no keyword",
    "filter": "write the condition into 'match { … }'; it needs no keyword",
    "having": "'having' follows 'return'; write conditions of rows into 'match { … }'",
    "order": "'order' follows 'return'",
    "limit": "'limit' follows 'return'",
    "match": "write all clauses into one 'match', or end a stage with 'with { … }'",
    "optional": "write optional { … } into 'match { … }'",
    "select": "write return { … }",
}
"""Hints for words between `match` and `return`."""

AFTER_RETURN = {
    "skip": "write 'offset'",
    "with": "'with' ends a stage, so it precedes 'return'",
    "group": "rows are grouped by the columns that have no aggregate; leave 'group by' out",
    "where": "write the condition into 'match { … }', or conditions of groups into 'having { … }'",
    "union": "a query has one result; run two queries",
    "top": "write 'limit'",
    "fetch": "write 'limit'",
    "sort": "write order { … }",
    "orderby": "write order { … }",
}
"""Hints for words that cannot follow `return`."""

SORT_WORDS = {"ascending": "write 'asc'", "descending": "write 'desc'"}

OTHER_FUNCTIONS = {
    **dict.fromkeys(("len", "size", "char_length", "strlen", "cardinality"), "length"),
    **dict.fromkeys(("tolower", "lcase", "lowercase"), "lower"),
    **dict.fromkeys(("toupper", "ucase", "uppercase"), "upper"),
    **dict.fromkeys(("ifnull", "nvl", "isnull", "nullif"), "coalesce"),
    **dict.fromkeys(("mean", "average"), "avg"),
    **dict.fromkeys(("today", "current_date", "current_timestamp", "timestamp"), "now"),
    **dict.fromkeys(("labels", "label", "typeof"), "type"),
    **dict.fromkeys(("datediff", "timestampdiff"), "date_diff"),
    **dict.fromkeys(("dateadd", "timestampadd"), "date_add"),
    **dict.fromkeys(("collect_list", "array_agg", "list", "group_concat", "string_agg"), "collect"),
    **dict.fromkeys(("relationships", "rels"), "edges"),
    **dict.fromkeys(("ceiling",), "ceil"),
    **dict.fromkeys(("similarity", "distance", "cosine", "vector_distance", "knn"), "nearest"),
}
"""Names of functions in other languages."""

OTHER_EXPRESSIONS = {
    **dict.fromkeys(("if", "case", "iif"), "there are no conditional expressions; decide in the program"),
    **dict.fromkeys(("shortestpath", "shortest_path"), "a clause of 'match' finds paths: shortest $path: $a edge $b"),
    **dict.fromkeys(("like", "ilike", "regexp", "rlike"), 'write $a.name matches "regular expression"'),
    **dict.fromkeys(("concat", "concatenate"), "write a + b"),
    "id": "write $a.id",
    "count_distinct": "write count(distinct …)",
    **dict.fromkeys(("startswith", "starts_with"), 'write $a.name starts_with "text"'),
    **dict.fromkeys(("endswith", "ends_with"), 'write $a.name ends_with "text"'),
    "contains": 'write $a.name contains "text"',
}
"""Functions of other languages that are written in another way."""


def function_hint(name: str) -> str | None:
    """The hint for an unknown function that another language has."""
    folded = name.lower()
    if folded in OTHER_EXPRESSIONS:
        return OTHER_EXPRESSIONS[folded]
    meant = OTHER_FUNCTIONS.get(folded) or OTHER_FUNCTIONS.get(folded.replace("_", ""))
    return None if meant is None else f"did you mean '{meant}'?"
