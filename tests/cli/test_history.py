"""`omnigraph log` and `omnigraph blame`: the history of one entity."""

from __future__ import annotations

from tests.cli.shell import Shell


def _life(shell: Shell, graph: str) -> list[str]:
    made = [shell.add_person(graph, "Ann", actor="kim", message="add Ann")]
    text = 'query q() { update Person set { age: 3 } where name = "Ann" }'
    shell.run("mutate", "--uri", graph, "-e", text, "--as", "bob")
    made.append(shell.json("commit", "list", graph, "--limit", "1")["commits"][0]["graph_commit_id"])
    return made


def test_blame_shows_the_commit_and_the_actor_of_each_value(shell: Shell, graph: str) -> None:
    first, second = _life(shell, graph)
    lines = [line.split() for line in shell.run("blame", "Person", "Ann", "--uri", graph).stdout.splitlines()]
    origins = {line[4]: (line[0], line[3], line[5]) for line in lines}
    assert origins["age"][1:] == ("bob", "3")
    assert origins["name"][1:] == ("kim", '"Ann"')
    assert second.startswith(origins["age"][0])
    assert first.startswith(origins["name"][0])
    (age,) = shell.json("blame", "Person", "Ann", "age", "--uri", graph)
    assert (age["property"], age["value"], age["commit"]["graph_commit_id"]) == ("age", 3, second)
    (age,) = shell.json("blame", "Person", "Ann", "age", "--uri", graph, "--snapshot", first)
    assert (age["value"], age["commit"]["graph_commit_id"]) == (None, first)
    assert "there is no entity 'Nobody'" in shell.fails("blame", "Person", "Nobody", "--uri", graph)
    assert "has no property 'agee'" in shell.fails("blame", "Person", "Ann", "agee", "--uri", graph)


def test_log_shows_the_life_of_an_entity(shell: Shell, graph: str) -> None:
    first, second = _life(shell, graph)
    shell.run("mutate", "--uri", graph, "-e", 'query q() { delete Person where name = "Ann" }')
    lines = shell.run("log", "Person", "Ann", "--uri", graph).stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [line[0] for line in heads] == ["-", "~", "+"]
    assert heads[2].endswith("insert  kim  add Ann")
    assert "    age: null → 3" in lines
    found = shell.json("log", "Person", "Ann", "--uri", graph)
    assert [change["operation"] for change in found["changes"]] == ["delete", "update", "insert"]
    assert [change["commit"]["graph_commit_id"] for change in found["changes"]][1:] == [second, first]
    assert found["changes"][1]["before"]["age"] is None
    assert found["kept_from"] is None
    said = shell.fails("log", "Person", "Nobody", "--uri", graph)
    assert "has never had an entity 'Nobody' on branch 'main'" in said


def test_a_commit_without_an_actor_has_a_dash_in_its_place(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann", message="add Ann")
    (head, *_) = shell.run("log", "Person", "Ann", "--uri", graph).stdout.splitlines()
    assert head.split()[4:] == ["insert", "-", "add", "Ann"]


def test_commits_that_are_not_kept_are_named(shell: Shell, graph: str) -> None:
    _, second = _life(shell, graph)
    shell.add_person(graph, "Ben")
    last = shell.add_person(graph, "Cas")
    shell.run("cleanup", graph, "--keep", "1", "--confirm")
    said = shell.run("log", "Person", "Ann", "--uri", graph).stdout
    assert said == f"in or before {last}: not kept\n"
    assert f"in or before  {last}  not kept" in shell.run("blame", "Person", "Ann", "--uri", graph).stdout
    assert second not in said


def test_ranges_of_commits_that_may_have_changed_the_entity_are_named(shell: Shell, graph: str) -> None:
    first = shell.add_person(graph, "Ben")
    _life(shell, graph)
    shell.run("mutate", "--uri", graph, "-e", 'query q() { delete Person where name = "Ann" }')
    second = shell.add_person(graph, "Cas")
    for tag, commit in (("one", first), ("two", second)):
        shell.run("tag", "create", tag, "--commit", commit, "--uri", graph)
    shell.add_person(graph, "Ann")
    shell.run("cleanup", graph, "--keep", "1", "--confirm")
    line = f"after {first}, in or before {second}: not all commits are kept"
    lines = shell.run("log", "Person", "Ann", "--uri", graph).stdout.splitlines()
    assert lines[-2:] == [line, f"in or before {first}: not kept"]
    ranges = [{"after_commit_id": first, "until_commit_id": second}]
    assert shell.json("log", "Person", "Ann", "--uri", graph)["incomplete_ranges"] == ranges
    said = shell.fails("log", "Person", "Ann", "--snapshot", "two", "--uri", graph)
    assert "no commit that is kept has an entity 'Ann' of node:Person" in said
    assert f"after {first}, in or before {second}; in or before {first}" in said
    assert "if the commits are kept" in shell.fails("blame", "Person", "Ann", "--snapshot", "two", "--uri", graph)


def test_commits_without_a_state_are_marked_and_errors_name_the_right_commit(shell: Shell, graph: str) -> None:
    first, second = _life(shell, graph)
    last = shell.add_person(graph, "Ben")
    shell.run("cleanup", graph, "--keep", "2", "--confirm")
    lines = shell.run("commit", "list", graph).stdout.splitlines()
    assert ["not kept" in line for line in lines] == [False, False, True, True]
    listed = shell.json("commit", "list", graph)["commits"]
    assert [one.get("is_kept", True) for one in listed] == [True, True, False, False]
    assert listed[0]["graph_commit_id"] == last
    said = shell.fails("commit", "show", second, "--changes", "--uri", graph)
    assert f"the changes of commit {second} cannot be shown: the state at commit {first} no longer exists" in said
    assert "_versions" not in said
