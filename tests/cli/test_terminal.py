"""The output of commands on a terminal with 80 and 160 columns, compared with files that people have looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.shell import Shell
from tests.cli.terminal import COLORS, on_terminal

import omnigraph

GOLDEN = Path(__file__).parents[1] / "fixtures" / "terminal"
SCHEMA = """
node Ship { name: String @key  tons: I64  load: F64?  built: Date?  note: String? }
node Port { name: String @key }
edge CallsAt: Ship -> Port { at: DateTime  @key(src, dst) }
"""
FLEET = """query fleet($least: I64) {
    match { $s: Ship  $s.tons > $least  optional { $s $c:callsAt $p } }
    return {
        $s.name as ship, $s.tons as tons, $s.load as load, $s.built as built, $p.name as port, $c.at as at,
        $s.note as note
    }
    order { tons }
}
"""
SOLD = "sold to somebody in another country, whose name is too long for a line of a terminal with eighty columns"
VARIES = [
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{14}\b"), "0" * 14),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"), "2026-01-02 03:04:05"),
    (re.compile(r" in [\d.]+ (?:ms|s)\b"), " in 1 ms"),
]


@pytest.fixture
def commands(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A graph in the current directory, and the commands to run there."""
    monkeypatch.chdir(shell.root)
    ships = [
        {
            "name": f"Ship {i:03}",
            "tons": 1_000 + i * 517,
            "load": i / 7,
            "note": f"a note, number {i}" if i % 3 else None,
        }
        for i in range(70)
    ]
    with omnigraph.init("fleet.omni", SCHEMA, actor="act-kim") as graph:
        calls = [{"from": f"Ship {i:03}", "to": "漢字 港", "at": "2024-01-02T03:04:05Z"} for i in range(30)]
        rows = {"Ship": ships, "Port": [{"name": "Hamburg"}, {"name": "漢字 港"}], "CallsAt": calls}
        graph.load(rows, mode="append", message="import of the fleet from the old register of the harbour, on paper")
        graph.branches.create("review")
        update = 'update Ship set { note: $note, built: date("2001-02-03") } where tons < 2000'
        graph.mutate(f"query q($note: String) {{ {update} }}", {"note": SOLD}, branch="review", message="sold")
        graph.mutate("query q() { delete Ship where tons = 11340 }", branch="review")
    shell.write("ships.csv", "name,tons,load\nShip 000,5,0.25\nShip 001,6,null\nArgo,120,1.5\n")
    shell.write("fleet.gq", FLEET)
    asked = ["--uri", "fleet.omni", "--query", "fleet.gq", "--params"]
    return [
        ["query", *asked, '{"least": 2000}'],
        ["query", *asked, '{"least": 35500}', "--format", "kv"],
        ["load", "fleet.omni", "--data", "ships.csv", "--type", "Ship", "--mode", "merge", "--quiet"],
        ["diff", "main", "review", "--uri", "fleet.omni"],
        ["commit", "list", "fleet.omni"],
    ]


@pytest.mark.parametrize("columns", [80, 160])
def test_the_output_on_a_terminal_is_as_approved(
    shell: Shell, commands: list[list[str]], columns: int, tmp_path: Path
) -> None:
    shown = on_terminal(*commands, columns=columns)
    text = "".join(
        f"$ omnigraph {' '.join(command)}\n{output}\n" for command, output in zip(commands, shown, strict=True)
    ).replace(str(shell.root), "…")
    text = COLORS.sub(lambda code: f"«{code[0][2:-1]}»", text)
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    actual = tmp_path / f"{columns}.txt"
    actual.write_text(text, encoding="utf-8")
    golden = GOLDEN / f"{columns}.txt"
    assert text == golden.read_text(encoding="utf-8"), f"look at {actual}; if it is better, copy it to {golden}"
    for index in (0, 4):  # tables of rows and of commits fit
        assert max(map(cell_len, COLORS.sub("", shown[index]).splitlines())) <= columns


@pytest.mark.parametrize("columns", [80, 160])
def test_a_plan_fits_the_terminal(commands: list[list[str]], columns: int) -> None:
    explain = ["explain", *commands[0][1:], "--analyze"]
    (shown,) = on_terminal(explain, columns=columns)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= columns
    start = next(i for i, line in enumerate(lines) if line.startswith("step "))
    assert re.fullmatch(r"step +estimate  rows +ms +bytes +read  calls", lines[start])
    steps: list[str] = []
    for line in lines[start + 1 : lines.index("", start)]:
        found = re.fullmatch(r"(.*?)  +([\d.]*)  +(\d*)(?:  +[\d.]+){4}", line)
        if found is None:  # the description continues
            steps[-1] += " " + line.strip()
        else:
            steps.append(found[1].rstrip())
    assert steps == [
        "where $s: Ship where ($s.tons > $least)",
        "scan $s: Ship",
        "left join for each $s",
        "  expand $s to $p by Ship -CallsAt-> Port as edge $c, by topology",
        "sort by column(tons)",
        "project ship, tons, load, built, port, at, note",
    ]
    assert re.fullmatch(
        r"68 rows in [\d.]+ ms; looked at .+ at most", " ".join(lines[lines.index("", start) :]).strip()
    )


def test_colors_can_be_switched_off_and_on(shell: Shell, commands: list[list[str]]) -> None:
    query, _, _, diff, listed = commands
    chosen = [query, diff, listed]
    assert all(COLORS.search(text) for text in on_terminal(*chosen, columns=80))
    assert not any(COLORS.search(text) for text in on_terminal(*chosen, columns=80, NO_COLOR="1"))
    assert not any(COLORS.search(text) for text in on_terminal(*chosen, columns=80, TERM="dumb"))
    never = [[*command, "--color", "never"] for command in chosen]
    assert not any(COLORS.search(text) for text in on_terminal(*never, columns=80))
    for command in chosen:
        assert "\x1b" not in shell.run(*command).stdout
        assert "\x1b[" in shell.run(*command, "--color", "always").stdout
    assert "50 rows" not in shell.run(*query).stdout
    assert "--all shows them" in shell.run(*query, "--color", "always").stdout


def test_all_rows_are_shown_on_request(commands: list[list[str]]) -> None:
    query = commands[0]
    first, everything = on_terminal(query, [*query, "--all"], columns=80)
    assert first.count("Ship ") == 50
    assert "… 18 more, --all shows them" in first
    assert everything.count("Ship ") == 68
    assert "68 rows from branch main via fleet in " in everything


def test_a_terminal_gets_no_control_characters_and_no_binary_data(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "\x1b]0;owned\x07\x1b[2J")
    read = ["query", "--uri", graph, "-e", "match { $p: Person } return { $p.name as name }"]
    for format in ("table", "kv", "csv", "tsv", "json", "jsonl", "ndjson", "markdown"):
        (shown,) = on_terminal([*read, "--format", format], columns=80)
        assert "owned" in shown
        assert "\x1b]" not in shown
        assert "\x1b[2J" not in shown
        assert "\x07" not in shown
