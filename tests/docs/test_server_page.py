"""The requests of the page about the server are answered by a server process."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.client.conftest import ServerProcess
from tests.docs.test_guides_run import DOCS

import omnigraph
from page_examples import blocks

ADDRESS = "http://127.0.0.1:8080"
SCHEMA = "node Person { name: String @key  age: I32? }"
STORED = """
query people($least: I32) {
    match {
        $p: Person
        $p.age >= $least
    }
    return { $p.name as name }
}
"""


def requests(page: str) -> list[Request]:
    """The requests of the `curl` commands of a page."""
    shell = "".join(block.text for block in blocks(page) if block.language == "sh").replace("\\\n", " ")
    found = []
    for command in re.findall(r"^curl (.*)$", shell, re.MULTILINE):
        address, *options = shlex.split(command)
        given = dict(zip(options[::2], options[1::2], strict=True))
        assert given.keys() <= {"-H", "-d"}, command
        headers = dict([given["-H"].split(": ", 1)]) if "-H" in given else {}
        found.append(Request(address, given["-d"].encode() if "-d" in given else None, headers))
    return found


@pytest.mark.slow
def test_the_requests_of_the_page_are_answered(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "people.omni", SCHEMA) as graph:
        graph.load({"Person": [{"name": "ann", "age": 30}, {"name": "bob", "age": 20}]}, mode="append")
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "people.gq").write_text(STORED, encoding="utf-8")
    server = ServerProcess(tmp_path / "people.omni", "--unauthenticated", "--queries", str(tmp_path / "queries"))
    try:
        page = (DOCS / "guide" / "server.md").read_text(encoding="utf-8").replace(ADDRESS, server.address)
        answers = {}
        for request in requests(page):
            with urlopen(request) as answer:
                answers[request.selector.removeprefix("/graphs/default")] = json.load(answer)
    finally:
        server.stop()
    assert [row["p.name"] for row in answers["/query"]["rows"]] == ["ann", "bob"]
    assert answers["/queries/people"]["rows"] == [{"name": "ann"}]
    assert answers["/tags"]["name"] == "v1"
    assert answers["/branches"]["name"] == "fix"
    assert len(answers) >= 7
