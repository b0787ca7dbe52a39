"""A directory to run commands in."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from omnigraph.cli.main import cli

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
