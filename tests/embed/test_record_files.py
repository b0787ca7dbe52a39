"""`omnigraph embed` without a graph: JSON lines in, JSON lines with vectors out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from tests.cli.shell import Shell

import omnigraph
from omnigraph.embed import Purpose, record_file
from omnigraph.embed.mock import MockEmbedder
from omnigraph.embed.record_file import Mode, RecordWork, embed_records
from omnigraph.embed.record_spec import RecordSpec, RecordType, Selector, read_manifest, read_spec

SPEC = {"dimension": 4, "types": {"Decision": {"target": "vec", "fields": ["slug", "intent"]}}}
ALPHA = '{"type":"Decision","data":{"slug":"dec-alpha","intent":"Alpha ship"}}'
BETA = '{"type":"Decision","data":{"slug":"dec-beta","intent":"Beta ship","vec":[0.1,0.2,0.3,0.4]}}'
EDGE = '{"edge": "Knows",  "from":"a", "to":"b", "data":{"weight": 1.50}}'
OTHER = '{"type":"Person","data":{"name":"ann"}}'
RECORDS = "\n".join([ALPHA, BETA, EDGE, OTHER]) + "\n"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    return Shell(tmp_path)


def run(shell: Shell, *options: str, records: str = RECORDS, spec: object = SPEC) -> Result:
    source, about = shell.write("in.jsonl", records), shell.write("spec.json", json.dumps(spec))
    output = str(shell.root / "out.jsonl")
    return shell.run("embed", "--input", source, "--output", output, "--spec", about, *options)


def written(shell: Shell) -> list[Any]:
    return [json.loads(line) for line in shell.read("out.jsonl").splitlines()]


def expected(text: str) -> list[float]:
    (row,) = MockEmbedder().embed([text], 4, purpose=Purpose.DOCUMENT)
    return [float(value) for value in row]


def test_missing_vectors_are_filled_and_other_lines_stay(shell: Shell) -> None:
    result = run(shell, "--json")
    assert json.loads(result.stdout) == {
        "input": str(shell.root / "in.jsonl"),
        "output": str(shell.root / "out.jsonl"),
        "records": 4,
        "selected_records": 3,
        "embedded_records": 1,
        "cleaned_records": 0,
        "mode": "fill_missing",
        "dimension": 4,
        "model": "mock",
    }
    lines = shell.read("out.jsonl").splitlines()
    assert lines[1:] == [BETA, EDGE, OTHER]
    vector = json.loads(lines[0])["data"].pop("vec")
    assert vector == pytest.approx(expected("type: Decision\nslug: dec-alpha\nintent: Alpha ship"), abs=1e-7)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    assert lines[0].startswith(ALPHA[:-2])


@pytest.mark.parametrize(
    ("options", "mode", "counts", "kept"),
    [
        (["--reembed-all"], "reembed_all", (3, 2, 0), [False, False]),
        (["--select", "Decision:slug=dec-beta"], "reembed_selected", (1, 1, 0), [None, False]),
        (["--select", "slug=dec-beta", "--select", "intent=Alpha ship"], "reembed_selected", (2, 2, 0), [False, False]),
        (["--type", "Decision"], "fill_missing", (2, 1, 0), [False, True]),
        (["--clean"], "clean", (3, 0, 1), [None, None]),
        (["--clean", "--select", "slug=dec-alpha"], "clean", (1, 0, 0), [None, True]),
    ],
)
def test_modes_and_selectors_choose_the_records(
    shell: Shell, options: list[str], mode: str, counts: tuple[int, int, int], kept: list[bool | None]
) -> None:
    found = json.loads(run(shell, "--json", *options).stdout)
    assert found["mode"] == mode
    assert tuple(found[f"{name}_records"] for name in ("selected", "embedded", "cleaned")) == counts
    assert found["model"] == (None if mode == "clean" else "mock")
    for record, stays in zip(written(shell)[:2], kept, strict=True):
        vector = record["data"].get("vec")
        assert vector is None if stays is None else (vector == [0.1, 0.2, 0.3, 0.4]) == stays
    assert shell.read("out.jsonl").splitlines()[2:] == [EDGE, OTHER]


def test_a_manifest_names_the_files_and_the_spec(shell: Shell) -> None:
    shell.write("data/seed.jsonl", RECORDS)
    manifest = "graph: {slug: g}\nsources:\n  raw_seed: ./data/seed.jsonl\nembeddings:\n  dimension: 4\n  types:\n"
    manifest += "    Decision: {target: vec, fields: [slug, intent]}\n"
    result = shell.run("embed", "--seed", shell.write("seed.yaml", manifest))
    output = shell.root / "build" / "seed.embedded.jsonl"
    assert result.stdout == f"{output}: 4 records, 3 selected, 1 embedded with mock\n"
    assert len(output.read_text().splitlines()) == 4
    older = manifest.replace("sources:\n  raw_seed: ", "artifacts: {embedded_seed: out.jsonl}\nseed:\n  data: ")
    assert shell.run("embed", "--seed", shell.write("older.yaml", older)).exit_code == 0
    assert shell.read("out.jsonl") == output.read_text()


def test_the_result_can_be_loaded(shell: Shell) -> None:
    schema = "node Decision { slug: String @key  intent: String  vec: Vector(4)? }"
    assert run(shell, records=f"{ALPHA}\n{BETA}\n").exit_code == 0
    with omnigraph.init(shell.root / "g", schema) as graph:
        graph.load(shell.root / "out.jsonl", mode="append")
        assert graph.entity("Decision", "dec-beta")["vec"] == pytest.approx([0.1, 0.2, 0.3, 0.4])  # type: ignore[index]


def test_a_file_can_be_its_own_output_and_streams_work(shell: Shell) -> None:
    source, spec = shell.write("in.jsonl", RECORDS), shell.write("spec.json", json.dumps(SPEC))
    piped = shell.run("embed", "--input", "-", "--output", "-", "--spec", spec, stdin=RECORDS)
    assert shell.run("embed", "--input", source, "--output", source, "--spec", spec).exit_code == 0
    assert shell.read("in.jsonl") == piped.stdout
    assert piped.stderr == "-: 4 records, 3 selected, 1 embedded with mock\n"


def test_a_failure_keeps_the_old_output(shell: Shell) -> None:
    shell.write("out.jsonl", "old")
    result = run(shell, records=f"{ALPHA}\n{{\n")
    assert result.exit_code == 1
    assert f"{shell.root}/in.jsonl, line 2: not JSON: " in result.stderr
    assert shell.read("out.jsonl") == "old"
    assert sorted(path.name for path in shell.root.iterdir()) == [
        "in.jsonl",
        "out.jsonl",
        "people.gq",
        "people.pg",
        "spec.json",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "line 1: expected a JSON object"),
        ('{"type": "Decision"}', "line 1: 'data' is not an object"),
        ('{"type": "Decision", "data": {"vec": null, "vec": null}}', "line 1: member 'vec' is given twice"),
        ('{"type": "Decision", "data": {"slug": "\\ud800"}}', "line 1: not JSON"),
        ('{"type": "Decision", "data": {"slug": NaN}}', "line 1: not JSON"),
    ],
)
def test_lines_that_are_no_records_are_errors(shell: Shell, line: str, message: str) -> None:
    result = run(shell, records=line)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--clean", "--reembed-all"), 2, "give --clean or --reembed-all, not both"),
        (("--branch", "main"), 2, "--branch is about a graph, and does not apply to files"),
        (("graph.omni",), 2, "URI is about a graph"),
        (("--missing",), 2, "--stale/--missing/--all is about a graph"),
        (("--type", "Decisio"), 1, "the spec has no type 'Decisio'\n  help: did you mean 'Decision'?"),
        (("--select", "Persn:slug=x"), 1, "the spec has no type 'Persn'"),
        (("--select", "slug"), 1, "'slug' selects no records\n  help: write field=value or Type:field=value"),
        (("--seed", "SPEC"), 2, "--seed names the input and the spec"),
    ],
)
def test_careless_options_are_errors(shell: Shell, options: tuple[str, ...], code: int, message: str) -> None:
    spec = shell.write("spec.json", json.dumps(SPEC))
    result = run(shell, *(spec if option == "SPEC" else option for option in options))
    assert result.exit_code == code
    assert message in result.stderr


def test_options_of_files_need_files(shell: Shell) -> None:
    assert "--clean is about files: give --seed" in shell.fails("embed", "g", "--clean", code=2)
    assert "give --seed, or --input, --output and --spec" in shell.fails("embed", "--input", "x", code=2)
    assert "standard output receives the records" in shell.fails(
        "embed", "--input", "-", "--output", "-", "--spec", shell.write("s.json", json.dumps(SPEC)), "--json", code=2
    )
    missing = shell.run(
        "embed", "--input", "no.jsonl", "--output", "o", "--spec", shell.write("s.json", json.dumps(SPEC))
    )
    assert "cannot read no.jsonl: No such file or directory" in missing.stderr


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"types": {}}, "'dimension' is missing"),
        ({"dimension": 0, "types": {"A": {"target": "v", "fields": ["x"]}}}, "dimension: expected an integer"),
        ({"dimension": 4, "types": {}}, "types: there are no types"),
        ({"dimension": 4, "types": {"A": {"fields": ["x"]}}}, "types.A: 'target' is missing"),
        ({"dimension": 4, "types": {"A": {"target": "v", "fields": []}}}, "types.A.fields: there are no fields"),
        ({"dimension": 4, "types": {"A": {"target": "v", "fields": ["v"]}}}, "'v' is the target"),
        ({"dimension": 4, "typs": {}}, "unknown name\n  help: did you mean 'types'?"),
        ({**SPEC, "model": "gemini-embedding-2"}, "the spec names the model 'gemini-embedding-2', but 'mock' is"),
    ],
)
def test_errors_of_the_spec_name_their_place(shell: Shell, spec: object, message: str) -> None:
    result = run(shell, spec=spec)
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_manifest_without_input_or_spec_is_an_error() -> None:
    for text, message in (
        ("embeddings: {dimension: 4}", "the manifest names no input"),
        ("sources: {raw_seed: a}", "the manifest has no 'embeddings'"),
    ):
        with pytest.raises(omnigraph.OmnigraphError, match=message):
            read_manifest(text.encode(), "seed.yaml", Path())


def test_vectors_of_another_dimension_are_reported(shell: Shell) -> None:
    result = run(shell, records=BETA.replace("0.1,", ""))
    assert "warning: 1 vectors do not have the dimension 4; --reembed-all computes them again" in result.stderr


@pytest.mark.parametrize(
    ("line", "vector", "result"),
    [
        ('{"data":{},"type":"A"}', "[1]", '{"data":{"v": [1]},"type":"A"}'),
        ('{"data":{ "x" : 1e400 } }\r\n', "[1]", '{"data":{ "x" : 1e400, "v": [1] } }\r\n'),
        ('{"data":{"v":null,"x":"\\u00e9}"}}', "[1]", '{"data":{"v":[1],"x":"\\u00e9}"}}'),
        ('{"data":{"x":{"v":1},"v":[2]}}', "[1]", '{"data":{"x":{"v":1},"v":[1]}}'),
        ('{"data":{"v":[2]}}', None, '{"data":{}}'),
        ('{"data":{"a":1, "v":[2] ,"b":3}}', None, '{"data":{"a":1 ,"b":3}}'),
        ('{"data":{"v":[2], "b":3}}', None, '{"data":{"b":3}}'),
        ('{"x":{"data":{"v":1}},"data":{"\\u0076":1}}', "[1]", '{"x":{"data":{"v":1}},"data":{"\\u0076":[1]}}'),
    ],
)
def test_only_the_vector_changes_in_a_line(line: str, vector: str | None, result: str) -> None:
    assert record_file._with_vector(line, "v", vector) == result


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("  a ", "a"),
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        (7, "7"),
        (["a", None, 2], "a, 2"),
        ({"b": 1}, '{"b":1}'),
    ],
)
def test_values_become_text(value: object, text: str) -> None:
    kind = RecordType("vec", ("x",))
    assert kind.text("T", {"x": value}) == (f"type: T\nx: {text}" if text else "type: T")


def test_parts_of_a_large_file_give_the_same_result(thresholds: Any) -> None:
    records = "".join(f'{{"type":"T","data":{{"name":"n{n % 7}"}}}}\n\n' for n in range(50)).encode()
    work = RecordWork(RecordSpec(4, {"T": RecordType("vec", ("name",))}), Mode.FILL_MISSING)

    def outcome() -> tuple[bytes, record_file.RecordCounts, int]:
        written, seen = io.BytesIO(), []
        counts = embed_records(
            io.BytesIO(records), "x", written.write, work, MockEmbedder(), lambda c, t: seen.append(t.computed)
        )
        return written.getvalue(), counts, seen[-1]

    whole = outcome()
    thresholds(record_file, PORTION=3)
    assert outcome() == whole
    assert (whole[1].records, whole[1].embedded, whole[2]) == (50, 50, 7)


def test_a_line_without_an_end_is_an_error(thresholds: Any) -> None:
    thresholds(record_file, MAX_LINE_BYTES=100)
    work = RecordWork(read_spec(json.dumps(SPEC).encode(), "spec"), Mode.CLEAN)
    with pytest.raises(omnigraph.InputError, match="line 2: the line is longer than"):
        embed_records(io.BytesIO(b"{}\n" + b"x" * 200), "x", lambda data: None, work, None)


def test_selectors_are_parsed() -> None:
    assert Selector.parse("a = b=c ") == Selector(None, "a", "b=c")
    for text in ("", "a", ":a=b", "T:=b", "=b"):
        with pytest.raises(omnigraph.InputError):
            Selector.parse(text)
