"""A directory with the files of careless acts, and a runner for the acts."""

from __future__ import annotations

import gzip
from pathlib import Path

from click.testing import CliRunner

import omnigraph
from omnigraph.cli.main import cli

SCHEMA = """node Person {
    name: String @key
    age: I32?
    born: Date?
}
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""
QUERIES = """query older($than: I32) {
    match { $p: Person  $p.age > $than }
    return { $p.name as name }
}
query add($name: String) { insert Person { name: $name } }
"""
FILES: dict[str, bytes | str] = {
    "people.pg": SCHEMA,
    "queries.gq": QUERIES,
    "wrong.gq": "query a() {\n  match { $p: Person }\n  return { $p.nme }\n}\n",
    "people.ndjson": '{"type":"Person","data":{"name":"ann","age":41}}\n{"type":"Person","data":{"name":"bob"}}\n'
    '{"edge":"Knows","from":"ann","to":"bob","data":{}}\n',
    "empty.csv": "",
    "empty.gq": "",
    "binary.gq": b"\xff\xfe\x00q\x00u",
    "binary.ndjson": b"\x89PNG\r\n\x1a\n\x00\x00",
    "binary.csv": b"\x00\x01\x02,\x03\n\x04,\x05\n",
    "noheader.csv": "kim,7\nlee,8\n",
    "date.csv": "name,born\nkim,31.12.1999\n",
    "twice.csv": "name,age\nkim,7\nkim,8\n",
    "word.csv": "name,age\nkim,seven\n",
    "typo.csv": "name,agee\nkim,7\n",
    "short.csv": "name,age\nkim\n",
    "latin.csv": "name\nJosé\n".encode("latin-1"),
    "large.csv": "name,age\nkim,99999999999\n",
    "existing.csv": "name,age\nann,7\n",
    "quote.csv": 'name,age\n"kim,7\n',
    "Person.csv": "name,age\nkim,7\n",
    "dangling.ndjson": '{"edge":"Knows","from":"ann","to":"nobody","data":{}}\n',
    "brace.ndjson": '{"type":"Person","data":{"name":"x"}\n',
    "nokey.ndjson": '{"type":"Person","data":{"age":3}}\n',
    "typo.ndjson": '{"type":"Persn","data":{"name":"x"}}\n',
    "edge.ndjson": '{"edge":"Know","from":"ann","to":"bob","data":{}}\n',
    "notes.txt": "hello\n",
    "rows.xlsx": b"PK\x03\x04",
    "fake.parquet": "not parquet",
    "fake.arrow": "not arrow",
    "fake.csv.gz": "not gzip",
    "list.json": "[1, 2]",
    "twice.pg": "node A { x: String @key }\nnode A { y: String }\n",
    "colon.pg": "node Person {\n    name String\n}\n",
    "mapping.yaml": "sources: [{sorce: x}]",
    "flat.ndjson": '{"name":"kim"}\n',
    "list.ndjson": '[{"type":"Person"}]\n',
    "ends.ndjson": '{"edge":"Knows","data":{"from":"ann","to":"bob"}}\n',
    "text.ndjson": '{"type":"Person","data":{"name":"kim","age":"7"}}\n',
    "february.ndjson": '{"type":"Person","data":{"name":"kim","born":"2023-02-30"}}\n',
    "null.ndjson": '{"type":"Person","data":{"name":null}}\n',
    "same.ndjson": '{"type":"Person","data":{"name":"kim","name":"lee"}}\n',
    "utf16.csv": "name,age\nkim,7\n".encode("utf-16"),
    "blank.csv": "\n\n\n",
    "header.csv": "name,age,age\nkim,7,8\n",
    "long.csv": "name,age\nkim,7,8\n",
    "Knows.csv": "from,to\nann,bob\nann,nobody\n",
    "nofrom.csv": "to\nbob\n",
    "cut.csv.gz": gzip.compress(b"name,age\n" + b"kim,7\n" * 100)[:-9],
    "cut.json": '{"than": 1',
    "comma.pg": "node P { name: String, age: I32 }\n",
    "type.pg": "type P { name: String }\n",
    "lower.pg": "node person { name: String }\n",
    "other.pg": "node P { name: Sting }\n",
    "kye.pg": "node P { name: String @kye }\n",
    "range.pg": "node P { age: I32 @range(0..9) }\n",
    "brace.pg": "node P { name: String\n",
    "target.pg": "node P { name: String @key }\nedge Likes: P -> Q\n",
    "bom.pg": b"\xef\xbb\xbfnode P { name: String }\n",
    "bare.gq": "match { $p: Person } return { $p.name }\n",
    "twice.gq": "query a() { delete Person where age = 1 }\nquery a() { delete Person where age = 2 }\n",
    "tabs.yaml": "steps:\n\t- load\n",
}


def prepare(root: Path) -> None:
    """Write the files, and create the graph `g`."""
    for name, content in FILES.items():
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (root / "dir").mkdir()
    with omnigraph.init(root / "g", root / "people.pg") as graph:
        graph.load(str(root / "people.ndjson"), mode="append")


def outcome(args: list[str], root: Path, stdin: bytes | None = None) -> tuple[int, str]:
    """The exit code, and the message without usage, the target of a write, the source line and the hint."""
    ended = CliRunner().invoke(cli, args, prog_name="omnigraph", input=stdin)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    text = ended.stderr.replace(str(root), "…")
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if not line.startswith(("Usage: ", "Try 'omnigraph", "omnigraph "))]
    return ended.exit_code, next((line for line in lines if line), "")
