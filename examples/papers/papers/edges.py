"""The edges: for each type, a function from the row numbers of one endpoint to a batch.

All edges of a row are made together, so that what must hold among them (no pair twice, at most two advisers) can be
seen to within the batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from papers import columns as c
from papers import library as lib
from papers.library import Library
from papers.randomness import Ints, first_of_each, rank_in_row, repeat_rows
from papers.types import batch
from papers.vocabulary import CONTEXTS, FIELDS, ROOT, SUBJECTS, SUMMARIES

_CITATION_TRIES = 5
_BLOCK = 40


def wrote(library: Library, papers: Ints) -> pa.RecordBatch:
    draw = library.streams
    rows, authors = library.byline(papers)
    position = 1 + rank_in_row(rows)
    role = c.pick(("analysis", "software", "supervision", "writing"), draw["role"].below(rows, 4, position))
    return batch(
        "Wrote",
        {
            "from": library.orcid(authors),
            "to": library.doi(rows),
            "position": pa.array(position, pa.int32()),
            "corresponding": pa.array(position == 1),
            "role": c.keep(role, draw["role known"].chance(rows, 0.6, position)),
        },
    )


def cites(library: Library, papers: Ints) -> pa.RecordBatch:
    """References go to earlier papers: old ones collect the most, and most are of the same subject."""
    draw = library.streams
    counts = np.minimum(papers, draw["references"].heavy(papers, 5, 60))
    rows, lanes = repeat_rows(papers, counts)
    subject = library.subject(rows)
    cited = draw["cited"].skewed(rows, rows, lanes * _CITATION_TRIES)
    for attempt in range(1, _CITATION_TRIES):
        foreign = np.flatnonzero(library.subject(cited) != subject)
        cited[foreign] = draw["cited"].skewed(rows[foreign], rows[foreign], lanes[foreign] * _CITATION_TRIES + attempt)
    kept = first_of_each(rows, cited)
    rows, lanes, cited = rows[kept], lanes[kept], cited[kept]
    intent = c.pick(("background", "comparison", "critique", "method"), draw["intent"].skewed(rows, 4, lanes))
    context = c.pick(CONTEXTS, draw["context"].below(rows, len(CONTEXTS), lanes))
    return batch(
        "Cites",
        {
            "from": library.doi(rows),
            "to": library.doi(cited),
            "intent": c.keep(intent, draw["intent known"].chance(rows, 0.7, lanes)),
            "mentions": pa.array(draw["mentions"].heavy(rows, 1, 30, lanes), pa.uint32()),
            "context": c.keep(context, draw["context known"].chance(rows, 0.1, lanes)),
        },
    )


def replaces(library: Library, papers: Ints) -> pa.RecordBatch:
    """The last paper of every block of forty replaces one of the same block: no paper is replaced twice."""
    draw = library.streams
    rows = papers[papers % _BLOCK == _BLOCK - 1]
    reason = c.pick(("corrected proofs", "extended version"), draw["reason"].below(rows, 2))
    return batch(
        "Replaces",
        {
            "from": library.doi(rows),
            "to": library.doi(rows - 1 - draw["replaced"].below(rows, 20)),
            "reason": c.keep(reason, draw["reason known"].chance(rows, 0.5)),
        },
    )


def published_in(library: Library, papers: Ints) -> pa.RecordBatch:
    draw = library.streams
    kind = library.kind(papers)
    printed = library.appeared(papers) & ((kind == lib.ARTICLE) | (kind == lib.SURVEY))
    rows = papers[printed & draw["printed"].chance(papers, 0.95)]
    first = 1 + draw["first page"].below(rows, 900)
    pages = c.join(c.text(first), "-", c.text(first + 4 + draw["last page"].below(rows, 30)))
    return batch(
        "PublishedIn",
        {
            "from": library.doi(rows),
            "to": library.venue_id(library.venue(rows)),
            "accepted": c.keep(c.dates(library.day(rows) - 20), draw["accepted"].chance(rows, 0.8)),
            "pages": c.keep(pages, draw["page range"].chance(rows, 0.7)),
            "volume": c.keep(pa.array(1 + draw["volume"].below(rows, 60), pa.int32()), draw["bound"].chance(rows, 0.5)),
        },
    )


def about(library: Library, papers: Ints) -> pa.RecordBatch:
    draw = library.streams
    rows, lanes = repeat_rows(papers, 1 + draw["topics"].below(papers, 3))
    other = 1 + draw["topic"].below(rows, len(SUBJECTS) - 1, lanes)
    subject = np.where(lanes == 0, library.subject(rows), (library.subject(rows) + other) % len(SUBJECTS))
    kept = first_of_each(rows, subject)
    rows, lanes, subject = rows[kept], lanes[kept], subject[kept]
    weight = (draw["weight"].uniform(rows, lanes) * 0.5 + np.where(lanes == 0, 0.5, 0.0)).round(3)
    return batch(
        "About",
        {
            "from": library.doi(rows),
            "to": library.topic_id(subject),
            "weight": pa.array(weight.astype(np.float32)),
            "primary": pa.array(lanes == 0),
        },
    )


def uses(library: Library, papers: Ints) -> pa.RecordBatch:
    """Some papers use a dataset more than once, for different purposes: parallel edges."""
    draw = library.streams
    counts = np.where(draw["uses data"].chance(papers, 0.35), 1 + draw["uses"].below(papers, 3), 0)
    rows, lanes = repeat_rows(papers, counts)
    again = (lanes == 1) & draw["uses again"].chance(rows, 0.3)
    dataset = draw["used"].skewed(rows, library.datasets, np.where(again, 0, lanes))
    purpose = (draw["purpose"].below(rows, 3) + lanes) % 3
    share = pa.array((draw["share"].uniform(rows, lanes)).round(2))
    return batch(
        "Uses",
        {
            "from": library.doi(rows),
            "to": library.dataset_id(dataset),
            "purpose": c.pick(("analysis", "evaluation", "training"), purpose),
            "share": c.keep(share, draw["share known"].chance(rows, 0.4, lanes)),
        },
    )


def affiliated_with(library: Library, authors: Ints) -> pa.RecordBatch:
    """Up to three posts, one after the other; some people come back to where they were."""
    draw = library.streams
    counts = 1 + draw["posts"].below(authors, 3)
    rows, lanes = repeat_rows(authors, counts)
    last = lanes == np.repeat(counts, counts) - 1
    back = (lanes == 2) & draw["came back"].chance(rows, 0.4)
    institution = draw["employer"].skewed(rows, library.institutions, np.where(back, 0, lanes))
    since = library.career_start(rows) + lanes * 900 + draw["post"].below(rows, 800, lanes)
    until = library.career_start(rows) + (lanes + 1) * 900
    position = np.where(lanes == 0, 3, draw["position"].below(rows, 4, lanes))
    return batch(
        "AffiliatedWith",
        {
            "from": library.orcid(rows),
            "to": library.ror(institution),
            "since": c.dates(since),
            "until": c.keep(c.dates(until), ~last | draw["left"].chance(rows, 0.2)),
            "position": c.pick(("faculty", "postdoc", "staff", "student"), position),
        },
    )


def advises(library: Library, students: Ints) -> pa.RecordBatch:
    draw = library.streams
    chance = draw["advised"].uniform(students)
    counts = np.where(library.has_senior(students), (chance < 0.6).astype(np.int64) + (chance < 0.12), 0)
    rows, lanes = repeat_rows(students, counts)
    adviser = library.senior(rows, lanes)
    kept = first_of_each(rows, adviser)
    rows, lanes, adviser = rows[kept], lanes[kept], adviser[kept]
    since = library.career_start(rows)
    return batch(
        "Advises",
        {
            "from": library.orcid(adviser),
            "to": library.orcid(rows),
            "kind": c.pick(("doctoral", "informal", "postdoctoral"), draw["advice"].skewed(rows, 3, lanes)),
            "since": c.dates(since),
            "until": c.keep(c.dates(since + 1_500), draw["graduated"].chance(rows, 0.8, lanes)),
        },
    )


def reviewed(library: Library, papers: Ints) -> pa.RecordBatch:
    """One or two rounds by up to three people of the field, never by the paper's own authors."""
    draw = library.streams
    counts = np.where(draw["refereed"].chance(papers, 0.4), 1 + draw["referees"].below(papers, 3), 0)
    rows, lanes = repeat_rows(papers, counts)
    reviewer = library.author_near(library.subject(rows), rows, lanes, "referee")
    byline_rows, byline_authors = library.byline(papers)
    own = np.isin(rows * library.authors + reviewer, byline_rows * library.authors + byline_authors)
    kept = first_of_each(rows, reviewer) & ~own
    rows, lanes, reviewer = rows[kept], lanes[kept], reviewer[kept]
    rounds = 1 + draw["second round"].chance(rows, 0.3, lanes).astype(np.int64)
    index, turn = repeat_rows(np.arange(len(rows)), rounds)
    rows, lanes, reviewer = rows[index], lanes[index] * 2 + turn, reviewer[index]
    verdicts = ("accept", "major-revision", "minor-revision", "reject")
    when = library.submitted(rows) + 10 + 60 * turn + 50 * draw["reviewed"].uniform(rows, lanes)
    confidence = pa.array(draw["confidence"].uniform(rows, lanes).round(2).astype(np.float32))
    summary = c.pick(SUMMARIES, draw["summary"].below(rows, len(SUMMARIES), lanes))
    return batch(
        "Reviewed",
        {
            "from": library.orcid(reviewer),
            "to": library.doi(rows),
            "round": pa.array(1 + turn, pa.uint32()),
            "verdict": c.pick(verdicts, draw["verdict"].below(rows, len(verdicts), lanes)),
            "confidence": c.keep(confidence, draw["confident"].chance(rows, 0.8, lanes)),
            "when": c.instants(when),
            "summary": c.keep(summary, draw["summarised"].chance(rows, 0.5, lanes)),
        },
    )


def subtopic_of(library: Library, topics: Ints) -> pa.RecordBatch:
    below = [*FIELDS, *(subject.slug for subject in SUBJECTS)]
    above = [*(ROOT[0] for _ in FIELDS), *(subject.field for subject in SUBJECTS)]
    return batch("SubtopicOf", {"from": c.pick(below, topics), "to": c.pick(above, topics)})


def part_of(library: Library, institutions: Ints) -> pa.RecordBatch:
    draw = library.streams
    rows = institutions[(institutions > 0) & draw["part"].chance(institutions, 0.3)]
    since = lib.FIRST_DAY + draw["part since"].below(rows, 9_000)
    return batch(
        "PartOf",
        {
            "from": library.ror(rows),
            "to": library.ror(draw["whole"].below(rows, rows)),
            "since": c.keep(c.dates(since), draw["part dated"].chance(rows, 0.5)),
        },
    )


def hosts(library: Library, datasets: Ints) -> pa.RecordBatch:
    host = library.streams["host"].skewed(datasets, library.institutions)
    return batch("Hosts", {"from": library.ror(host), "to": library.dataset_id(datasets)})


def annotates(library: Library, notes: Ints) -> pa.RecordBatch:
    return batch("Annotates", {"from": library.note_id(notes), "to": library.doi(library.annotated(notes))})


def posted(library: Library, notes: Ints) -> pa.RecordBatch:
    reader = library.author_near(library.subject(library.annotated(notes)), notes, 0, "reader")
    return batch("Posted", {"from": library.orcid(reader), "to": library.note_id(notes)})


EdgeBatch = Callable[[Library, Ints], pa.RecordBatch]

EDGE_BATCHES: dict[str, tuple[EdgeBatch, Callable[[Library], int]]] = {
    "Wrote": (wrote, lambda library: library.papers),
    "Cites": (cites, lambda library: library.papers),
    "Replaces": (replaces, lambda library: library.papers),
    "PublishedIn": (published_in, lambda library: library.papers),
    "About": (about, lambda library: library.papers),
    "Uses": (uses, lambda library: library.papers),
    "AffiliatedWith": (affiliated_with, lambda library: library.authors),
    "Advises": (advises, lambda library: library.authors),
    "Reviewed": (reviewed, lambda library: library.papers),
    "SubtopicOf": (subtopic_of, lambda library: len(FIELDS) + len(SUBJECTS)),
    "PartOf": (part_of, lambda library: library.institutions),
    "Hosts": (hosts, lambda library: library.datasets),
    "Annotates": (annotates, lambda library: library.notes),
    "Posted": (posted, lambda library: library.notes),
}
"""How each edge type is made, and how many rows of the endpoint it is made from there are."""
