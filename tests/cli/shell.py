"""A directory to run commands in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner, Result

import omnigraph
from omnigraph.cli.main import cli
from omnigraph.commit.table_writes import Append
from omnigraph.commit.write_request import WriteRequest

SCHEMA = """\
node Person {
    name: String @key
    age: I32?
}

edge Knows: Person -> Person {
    since: Date?
    @key(src, dst)
}
"""

QUERIES = """\
query friends($name: String) {
    match {
        $p: Person { name: $name }
        $p knows $friend
    }
    return { $friend.name }
    order { $friend.name }
}
"""


class Shell:
    """A directory with a schema and queries, and the command to run on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.schema = self.write("people.pg", SCHEMA)
        self.queries = self.write("people.gq", QUERIES)

    def write(self, name: str, text: str | bytes) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    def read(self, name: str) -> str:
        return (self.root / name).read_bytes().decode()

    def run(self, *args: str, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(cli, args, input=stdin, prog_name="omnigraph")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *args: str) -> Any:
        """Run a command that succeeds, and return its JSON output."""
        result = self.run(*args, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def fails(self, *args: str, code: int = 1) -> str:
        """Run a command that fails, and return its error output."""
        result = self.run(*args)
        assert result.exit_code == code, result.output
        if "--json" in args:
            assert json.loads(result.stdout)["exit_code"] == code
        else:
            assert result.stdout == ""
        return result.stderr

    def init(self, name: str = "graph") -> str:
        """Create a graph in the directory."""
        uri = str(self.root / name)
        assert self.run("init", uri, "--schema", self.schema).exit_code == 0
        return uri

    def add_person(
        self, uri: str, name: str, *, branch: str = "main", actor: str | None = None, message: str | None = None
    ) -> str:
        """Commit a person, and return the commit id."""
        rows = pa.table({"id": [name], "name": [name], "age": pa.array([None], pa.int32())})
        request = WriteRequest(branch=branch, actor=actor, message=message, labels=(("step", name),))
        with omnigraph.open(uri) as graph:
            made = graph.write_tables(request, lambda _: [Append("node:Person", rows)])
        assert made is not None
        return made.id
