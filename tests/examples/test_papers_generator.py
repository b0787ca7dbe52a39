"""The generator gives the same library every time, with a realistic shape, in the formats that load reads."""

import subprocess
import sys
from base64 import b64decode
from collections import Counter
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest

from papers import EDGES, NODES, TYPES, embed, generate
from papers.embedding import sums
from papers.output import FORMATS, json_column, ndjson_lines
from papers.vocabulary import SENTENCES, SUBJECTS, TERMS, TERMS_PER_SUBJECT

Tables = dict[str, pa.Table]


def library(papers: int, seed: int = 7, batch_rows: int = 1_000) -> Tables:
    batches: dict[str, list[pa.RecordBatch]] = {}
    for name, batch in generate(papers, seed, batch_rows=batch_rows):
        batches.setdefault(name, []).append(batch)
    return {name: pa.Table.from_batches(made).combine_chunks() for name, made in batches.items()}


def test_same_size_and_seed_give_the_same_library() -> None:
    assert library(300) == library(300)


def test_the_library_does_not_change_between_versions() -> None:
    """Benchmarks are compared over time. Change the digest only if the data changes on purpose."""
    digest = sha256()
    for name, batch in generate(300, seed=7, types=["Wrote", "Cites"]):
        digest.update("".join(ndjson_lines(name, batch).to_pylist()).encode())
    assert digest.hexdigest()[:16] == "a018147a81b06ed5"


def test_the_library_does_not_depend_on_the_batch_size() -> None:
    whole = library(300, batch_rows=10_000)
    for batch_rows in (1_000, 97, 13):
        assert library(300, batch_rows=batch_rows) == whole


def test_batches_follow_their_schema_and_stay_small() -> None:
    order = []
    for name, batch in generate(500, batch_rows=100):
        assert batch.schema == TYPES[name]
        batch.validate(full=True)
        assert 0 < batch.num_rows <= 100 * 60
        order.append(name)
    assert list(dict.fromkeys(order)) == [*NODES, *EDGES]


def test_another_seed_gives_another_library_of_the_same_shape() -> None:
    one, other = library(300, seed=1), library(300, seed=2)
    assert one["Paper"]["doi"] == other["Paper"]["doi"]
    assert one["Paper"]["title"] != other["Paper"]["title"]
    assert one["Cites"] != other["Cites"]


def test_counts_scale_with_the_number_of_papers() -> None:
    small, large = library(1_000), library(4_000)
    for name in ("Author", "Paper", "Dataset", "Note", "Wrote", "Cites", "About", "Reviewed", "Uses"):
        assert 3.6 <= large[name].num_rows / small[name].num_rows <= 4.8, name
    assert large["Topic"] == small["Topic"]


def test_the_smallest_library_is_complete() -> None:
    tiny = library(1)
    assert tiny["Paper"].num_rows == 1
    assert tiny["Wrote"].num_rows >= 1
    with pytest.raises(ValueError, match="at least one paper"):
        library(0)


def test_selected_types_can_be_generated() -> None:
    assert {name for name, _ in generate(50, types=["Cites", "Topic"])} == {"Cites", "Topic"}
    with pytest.raises(ValueError, match="unknown types: Citse"):
        next(generate(50, types=["Citse"]))


def test_citations_authorship_and_topics_are_skewed(tables: Tables) -> None:
    for name, end, share in (("Cites", "to", 0.3), ("Wrote", "from", 0.3), ("About", "to", 0.15)):
        counts = tables[name].group_by(end).aggregate([([], "count_all")])["count_all"].to_numpy()
        top_tenth = np.sort(counts)[::-1][: max(1, len(counts) // 10)]
        assert top_tenth.sum() / counts.sum() > share, name


def test_names_have_non_ascii_letters(tables: Tables) -> None:
    names = " ".join(tables["Author"]["name"].to_pylist())
    for letter in ("é", "ł", "Ş", "ễ", "王", "김"):
        assert letter in names


def test_abstracts_use_the_words_of_their_subject(tables: Tables) -> None:
    about = tables["About"].filter(tables["About"]["primary"])
    subject_of = dict(zip(about["from"].to_pylist(), about["to"].to_pylist(), strict=True))
    terms = {subject.slug: subject.terms for subject in SUBJECTS}
    for row in tables["Paper"].select(["doi", "title", "abstract"]).slice(0, 200).to_pylist():
        own = terms[subject_of[row["doi"]]]
        assert any(term in row["title"].lower() for term in own)
        assert row["abstract"] is None or sum(term in row["abstract"] for term in own) >= 1


def test_vectors_are_the_embedding_of_the_abstract(tables: Tables) -> None:
    described = tables["Paper"].filter(pc.is_valid(tables["Paper"]["abstract"])).slice(0, 300)
    stored = np.array(described["abstract_vec"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(stored, embed(described["abstract"].to_pylist()), atol=2e-4)
    np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1.0, atol=1e-3)
    assert tables["Paper"]["abstract_vec"].is_valid().equals(tables["Paper"]["abstract"].is_valid())


def test_only_terms_affect_the_embedding() -> None:
    fragments = [text for parts in SENTENCES for part in parts for text in part]
    assert not sums(fragments).any()
    assert len(TERMS) == len(set(TERMS)) == len(SUBJECTS) * TERMS_PER_SUBJECT


def test_nearest_papers_are_about_the_subject_of_the_query(tables: Tables) -> None:
    about = tables["About"].filter(tables["About"]["primary"])
    subject_of = dict(zip(about["from"].to_pylist(), about["to"].to_pylist(), strict=True))
    described = tables["Paper"].filter(pc.is_valid(tables["Paper"]["abstract_vec"]))
    vectors = np.array(described["abstract_vec"].to_pylist(), dtype=np.float32)
    for subject in SUBJECTS[:12]:
        query = embed([f"how do {subject.terms[0]} and {subject.terms[3]} interact?"])[0]
        best = np.argsort(-(vectors @ query))[:10]
        found = Counter(subject_of[described["doi"][int(row)].as_py()] for row in best)
        assert found[subject.slug] >= 7, subject.slug


def test_ndjson_lines_are_load_envelopes(tables: Tables, tmp_path: Path) -> None:
    batches = [(name, batch) for name, table in tables.items() for batch in table.to_batches()]
    (path,) = FORMATS["ndjson"](batches, tmp_path)
    lines = path.read_bytes().splitlines()
    assert len(lines) == sum(table.num_rows for table in tables.values())
    seen: Counter[str] = Counter()
    for line in lines:
        envelope = orjson.loads(line)
        name = envelope.get("type") or envelope["edge"]
        if name in NODES:
            assert list(envelope) == ["type", "data"]
        else:
            assert list(envelope) == ["edge", "from", "to", "data"]
            assert isinstance(envelope["from"], str)
            assert isinstance(envelope["to"], str)
        assert None not in envelope["data"].values()
        seen[name] += 1
    assert seen == {name: table.num_rows for name, table in tables.items()}


def test_ndjson_values_are_the_generated_ones(tables: Tables, tmp_path: Path) -> None:
    paper = tables["Paper"].filter(pc.is_valid(tables["Paper"]["pdf"])).slice(0, 1)
    (path,) = FORMATS["ndjson"]([("Paper", paper.combine_chunks().to_batches()[0])], tmp_path)
    data = orjson.loads(path.read_bytes())["data"]
    row = paper.to_pylist()[0]
    assert data["title"] == row["title"]
    assert data["published"] == row["published"].isoformat()
    assert b64decode(data["pdf"].removeprefix("base64:")) == row["pdf"]
    assert data["abstract_vec"] == pytest.approx(row["abstract_vec"], abs=1e-6)
    assert data["downloads"] == row["downloads"]
    assert datetime.fromisoformat(data["submitted_at"]) == row["submitted_at"]
    assert data["submitted_at"].endswith("Z")
    (path,) = FORMATS["ndjson"]([("PublishedIn", tables["PublishedIn"].to_batches()[0].slice(0, 1))], tmp_path)
    series, year = orjson.loads(orjson.loads(path.read_bytes())["to"])
    assert (series, int(year)) in set(
        zip(tables["Venue"]["series"].to_pylist(), tables["Venue"]["year"].to_pylist(), strict=True)
    )


def test_json_columns_are_valid_json() -> None:
    for values, kind in (
        (['say "hi"', "back\\slash", "line\nbreak", "é 王", None], pa.string()),
        ([[], [1, 2], None, [3]], pa.list_(pa.uint32())),
        ([["a", 'b"'], None], pa.list_(pa.string())),
        ([[0.5, 1.0], None, [2.0, 3.25]], pa.list_(pa.float32(), 2)),
        ([1.5, 1e-7, 1e20, None], pa.float64()),
        ([True, False, None], pa.bool_()),
        ([2**64 - 1, 0, None], pa.uint64()),
    ):
        for offset in (0, 1):
            texts = json_column(pa.array(values, kind).slice(offset)).to_pylist()
            assert [None if text is None else orjson.loads(text) for text in texts] == values[offset:]


def test_csv_and_parquet_hold_the_same_rows(tables: Tables, tmp_path: Path) -> None:
    batches = [(name, batch) for name, table in tables.items() for batch in table.to_batches()]
    assert len(FORMATS["parquet"](batches, tmp_path)) == len(FORMATS["csv"](batches, tmp_path)) == len(TYPES)
    for name, table in tables.items():
        stored = pa.parquet.read_table(tmp_path / f"{name}.parquet")
        text = pa.csv.read_csv(tmp_path / f"{name}.csv")
        assert stored.column_names == text.column_names == table.column_names
        assert stored.num_rows == text.num_rows == table.num_rows
        assert stored.cast(table.schema) == table


def test_command_line_writes_files(folder: Path, tmp_path: Path) -> None:
    options = ["--papers", "20", "--out", str(tmp_path / "new"), "--format", "csv"]
    command = [sys.executable, str(folder / "generate.py"), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert {Path(line).name for line in done.stdout.split()} >= {"Paper.csv", "Cites.csv"}
    assert len((tmp_path / "new" / "Paper.csv").read_text(encoding="utf-8").splitlines()) == 21
