"""Hooks of schemathesis: requests that get past the first check, and the contract as a check of every answer.

Schemathesis imports this module: `SCHEMATHESIS_HOOKS=tests.server.fuzzing`.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import schemathesis
from tests.server.contract import CONTRACT

ROWS = '{"type":"Person","data":{"name":"eve","age":7}}\n{"edge":"Knows","from":"eve","to":"eve","data":{}}\n'
READS = [
    "query all() { match { $p: Person } return { $p.name, $p.age } order { $p.name } limit 5 }",
    "query some($n: String, $a: I32?) { match { $p: Person { name: $n } } return { $p.age, $a as a } }",
    "query walk() { match { $p: Person  $p knows{1,3} $q } return { $p.name, count($q) as n } }",
    "query two() { match { $p: Person } return { count($p) as n } } query all() { match { $p: Person } return { $p } }",
]
WRITES = [
    "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }",
    'query change() { update Person set { age: 8 } where name = "eve" }',
    'query remove() { delete Person where name = "eve" }',
]
VALUES: dict[str, list[Any]] = {
    "query": [*READS, *WRITES],
    "query_source": [*READS, *WRITES],
    "name": ["all", "add", "draft", "v1"],
    "query_name": ["all", "add"],
    "branch": ["main", "draft"],
    "from": ["main", "draft"],
    "to": ["main", "draft", "v1"],
    "source": ["draft", "main"],
    "target": ["main", "draft"],
    "data": [ROWS],
    "params": [{"n": "eve"}, {"n": "ann", "a": 3}, {"n": 7}],
    "type_names": [["Person"], ["Knows", "Person"]],
    "type": ["Person", "Knows"],
    "id": ["ann", "eve"],
    "property": ["photo", "name"],
    "start": ["now", "beginning"],
    "commit_id": ["v1"],
}
"""Values with which requests get further than with random texts."""


def known(members: Any) -> Any:
    """The members, some of them with a known value. The choice depends on the members only, to be repeatable."""
    if not isinstance(members, dict):
        return members
    seed = crc32(repr(members).encode("utf-8", "backslashreplace"))
    made = dict(members)
    for place, name in enumerate(sorted(made, key=str)):
        choice = (seed >> place % 16) % 4
        if name in VALUES and choice:
            values = VALUES[name]
            made[name] = values[seed // 7 % len(values)]
    return made


@schemathesis.serializer("application/x-ndjson")
def ndjson(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    if isinstance(body, str) and crc32(body.encode("utf-8", "surrogatepass")) % 2:
        return ROWS
    return known(body)


@schemathesis.hook
def map_query(context: schemathesis.HookContext, query: Any) -> Any:
    return known(query)


@schemathesis.hook
def map_path_parameters(context: schemathesis.HookContext, path_parameters: Any) -> Any:
    return known(path_parameters)


@schemathesis.check
def fits_the_contract(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """Every answer has a documented status, and every error the one shape."""
    headers = {name: ", ".join(values) for name, values in response.headers.items()}
    sent = response.request
    CONTRACT.check(str(sent.method), str(sent.url), response.status_code, headers, response.content)
