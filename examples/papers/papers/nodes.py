"""The nodes: for each type, a function from row numbers to a batch."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from papers import columns as c
from papers import library as lib
from papers.embedding import DIMENSIONS, Vectors, sums, unit
from papers.library import Library
from papers.randomness import Ints, repeat_rows
from papers.types import batch
from papers.vocabulary import (
    DATASET_FORMS,
    FAMILY,
    FIELDS,
    GIVEN,
    INSTITUTION_KINDS,
    INSTITUTION_NAMES,
    NOTE_BODIES,
    PLACES,
    ROOT,
    SENTENCES,
    SUBJECTS,
    TERMS,
    TERMS_PER_SUBJECT,
    TITLE_LINKS,
)

_LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "ja", "pt", "zh")
_FORMATS = ("csv", "hdf5", "json", "netcdf", "parquet")
_LICENSES = ("cc0", "cc-by", "cc-by-nc", "odbl", "proprietary")
_SPLITS = np.array([[0.8, 0.1, 0.1], [0.7, 0.15, 0.15], [0.6, 0.2, 0.2]])
_PDFS = tuple(f"%PDF-1.4\n% specimen {number}\n%%EOF\n".encode() for number in range(8))


def authors(library: Library, rows: Ints) -> pa.RecordBatch:
    draw = library.streams
    given = draw["given"].below(rows, len(GIVEN))
    family = draw["family"].below(rows, len(FAMILY))
    orcid = library.orcid(rows)
    email = c.join(c.pick(_ascii(GIVEN), given), ".", c.pick(_ascii(FAMILY), family), c.text(rows), "@example.org")

    alias_count = np.maximum(draw["aliases"].below(rows, 5) - 2, 0)
    alias_known = draw["aliases known"].chance(rows, 0.4)
    alias_rows, alias_lanes = repeat_rows(np.arange(len(rows)), np.where(alias_known, alias_count, 0))
    initials = c.pick([name[0] + "." for name in GIVEN], given[alias_rows])
    family_names = c.pick(FAMILY, family[alias_rows])
    aliases = pc.if_else(
        pa.array(alias_lanes == 0), c.join(initials, " ", family_names), c.join(family_names, ", ", initials)
    )

    spoken = 1 + draw["languages"].below(rows, 3)
    speaker, lanes = repeat_rows(rows, spoken)
    languages = (draw["first language"].below(speaker, len(_LANGUAGES)) + 2 * lanes) % len(_LANGUAGES)
    prominence = 60 / np.sqrt(library.author_rank(rows) + 1) * (0.5 + draw["h index"].uniform(rows))
    started = library.career_start(rows)
    return batch(
        "Author",
        {
            "orcid": orcid,
            "name": c.join(c.pick(GIVEN, given), " ", c.pick(FAMILY, family)),
            "homepage": c.keep(c.join("https://example.org/people/", orcid), draw["homepage"].chance(rows, 0.3)),
            "email": c.keep(email, draw["email"].chance(rows, 0.8)),
            "aliases": c.lists(aliases, np.where(alias_known, alias_count, 0), alias_known),
            "languages": c.lists(c.pick(_LANGUAGES, languages), spoken),
            "h_index": pa.array(prominence.astype(np.uint32)),
            "active": pa.array(draw["active"].chance(rows, 0.85)),
            "recorded_at": c.instants(started + draw["recorded"].uniform(rows)),
        },
    )


def papers(library: Library, rows: Ints) -> pa.RecordBatch:
    draw = library.streams
    day, submitted = library.day(rows), library.submitted(rows)
    title, abstract, meaning = _prose(library, rows)
    described = draw["described"].chance(rows, 0.97)

    revisions = draw["revisions"].below(rows, 3)
    revised = draw["revised"].chance(rows, 0.4)
    revised_rows, lanes = repeat_rows(np.arange(len(rows)), np.where(revised, revisions, 0))
    revision_days = submitted[revised_rows].astype(np.int64) + 5 + lanes * 12

    keyword_count = draw["keywords"].below(rows, 6)
    tagged = draw["tagged"].chance(rows, 0.9)
    keyword_rows, lanes = repeat_rows(rows, np.where(tagged, keyword_count, 0))
    keyword_terms = (draw["first keyword"].below(keyword_rows, TERMS_PER_SUBJECT) + lanes) % TERMS_PER_SUBJECT
    keywords = c.pick(TERMS, library.subject(keyword_rows) * TERMS_PER_SUBJECT + keyword_terms)

    month = day.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    month_code = (1970 + month // 12) % 100 * 100 + month % 12 + 1
    arxiv = c.join(c.digits(month_code, 4), ".", c.digits(rows, 9))
    reach = 1.0 / (1.0 - draw["downloads"].uniform(rows))
    pdf = pa.array(_PDFS, pa.large_binary()).take(pa.array(rows % len(_PDFS)))
    return batch(
        "Paper",
        {
            "doi": library.doi(rows),
            "title": title,
            "abstract": c.keep(abstract, described),
            "abstract_vec": c.vectors(meaning, described),
            "kind": c.pick(lib.KINDS, library.kind(rows)),
            "status": c.pick(lib.STATUSES, library.status(rows)),
            "published": c.keep(c.dates(day), library.appeared(rows)),
            "submitted_at": c.instants(submitted),
            "revised": c.lists(c.dates(revision_days), np.where(revised, revisions, 0), revised),
            "pages": c.keep(
                pa.array(3 + draw["pages"].heavy(rows, 5, 400), pa.int32()), draw["paged"].chance(rows, 0.92)
            ),
            "downloads": pa.array(np.minimum(10 * reach * np.sqrt(reach), 1e9).astype(np.int64)),
            "novelty": c.keep(
                pa.array(draw["novelty"].uniform(rows).round(3).astype(np.float32)), draw["rated"].chance(rows, 0.7)
            ),
            "keywords": c.lists(keywords, np.where(tagged, keyword_count, 0), tagged),
            "open_access": pa.array(draw["open access"].chance(rows, 0.55)),
            "arxivId": c.keep(arxiv, draw["arxiv"].chance(rows, 0.4)),
            "pdf": c.keep(pdf, draw["pdf"].chance(rows, 0.02)),
            "recorded_at": c.instants(submitted + 3 * draw["received"].uniform(rows)),
        },
    )


def venues(library: Library, rows: Ints) -> pa.RecordBatch:
    draw = library.streams
    series, year = rows // lib.YEARS, rows % lib.YEARS + lib.FIRST_YEAR
    journal = series % 2 == 1
    kind = np.where(journal, 1, np.where(series == 10, 2, 0))
    opens = (year - 1970).astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64) + 90
    opens = opens + draw["opens"].below(rows, 180)
    milestones = np.where(journal, 0, draw["milestones"].below(rows, 4))
    milestone_rows, lanes = repeat_rows(np.arange(len(rows)), milestones)
    names = c.join(c.pick(lib.SERIES, series), " ", c.text(year))
    return batch(
        "Venue",
        {
            "series": c.pick(lib.SERIES, series),
            "year": pa.array(year, pa.int32()),
            "name": names,
            "homepage": c.keep(
                c.join("https://example.org/venues/", c.text(rows)), draw["venue page"].chance(rows, 0.5)
            ),
            "kind": c.pick(("conference", "journal", "workshop"), kind),
            "isbn": c.keep(c.join("978-", c.digits(1_000_003 * (rows + 1), 10)), ~journal),
            "opens": c.keep(c.dates(opens), ~journal),
            "deadline": c.keep(c.instants(opens.astype(np.float64) - 120 - 1 / 86_400), ~journal),
            "milestones": c.lists(c.dates(opens[milestone_rows] - 90 + 30 * lanes), milestones, ~journal),
            "acceptance_rate": c.keep(
                pa.array((0.1 + 0.4 * draw["acceptance"].uniform(rows)).round(3)), draw["selective"].chance(rows, 0.8)
            ),
            "impact": c.keep(pa.array((9 * draw["impact"].uniform(rows)).round(2).astype(np.float32)), journal),
        },
    )


def institutions(library: Library, rows: Ints) -> pa.RecordBatch:
    draw = library.streams
    place = draw["place"].below(rows, len(PLACES))
    kind = draw["institution kind"].skewed(rows, len(INSTITUTION_KINDS))
    names = [pattern.format(city) for city, *_ in PLACES for pattern in INSTITUTION_NAMES]
    located = draw["located"].chance(rows, 0.9)
    latitude = np.array([latitude for _, _, latitude, _ in PLACES])[place]
    longitude = np.array([longitude for *_, longitude in PLACES])[place]
    students = pa.array(200 + draw["students"].below(rows, 60_000), pa.uint32())
    return batch(
        "Institution",
        {
            "ror": library.ror(rows),
            "name": c.pick(names, place * len(INSTITUTION_NAMES) + kind),
            "homepage": c.keep(c.join("https://example.org/at/", library.ror(rows)), draw["site"].chance(rows, 0.6)),
            "kind": c.pick(INSTITUTION_KINDS, kind),
            "country": c.pick([country for _, country, *_ in PLACES], place),
            "founded": c.keep(
                pa.array(1350 + draw["founded"].below(rows, 660), pa.int32()), draw["dated"].chance(rows, 0.85)
            ),
            "students": c.keep(students, kind == 0),
            "latitude": c.keep(pa.array((latitude + draw["latitude"].uniform(rows) - 0.5).round(4)), located),
            "longitude": c.keep(pa.array((longitude + draw["longitude"].uniform(rows) - 0.5).round(4)), located),
            "accredited": c.keep(pa.array(draw["accredited"].chance(rows, 0.8)), kind < 2),
        },
    )


def topics(library: Library, rows: Ints) -> pa.RecordBatch:
    slugs = [ROOT[0], *FIELDS, *(subject.slug for subject in SUBJECTS)]
    names = [ROOT[1], *(name for name, _ in FIELDS.values()), *(subject.name for subject in SUBJECTS)]
    summaries = ["", *("" for _ in FIELDS), *("About " + ", ".join(subject.terms) + "." for subject in SUBJECTS)]
    depth = np.where(rows == 0, 0, np.where(rows <= len(FIELDS), 1, 2))
    return batch(
        "Topic",
        {
            "slug": c.pick(slugs, rows),
            "name": c.pick(names, rows),
            "homepage": pa.nulls(len(rows), pa.string()),
            "summary": c.keep(c.pick(summaries, rows), depth == 2),
            "depth": pa.array(depth, pa.int32()),
        },
    )


def datasets(library: Library, rows: Ints) -> pa.RecordBatch:
    draw = library.streams
    names = [f"{term} {form}".capitalize() for form in DATASET_FORMS for term in TERMS]
    reach = 1.0 / (1.0 - draw["entries"].uniform(rows))
    entries = np.minimum(100 * reach * reach, 1e12).astype(np.int64)
    known = draw["formats known"].chance(rows, 0.9)
    count = np.where(known, 1 + draw["formats"].below(rows, 2), 0)
    format_rows, lanes = repeat_rows(rows, count)
    formats = c.pick(_FORMATS, (draw["first format"].below(format_rows, len(_FORMATS)) + 2 * lanes) % len(_FORMATS))
    split = draw["split"].chance(rows, 0.3)
    shares = _SPLITS[draw["shares"].below(rows[split], len(_SPLITS))].reshape(-1)
    released = lib.FIRST_DAY + draw["released"].below(rows, lib.LAST_DAY - lib.FIRST_DAY)
    return batch(
        "Dataset",
        {
            "accession": pa.array(library.accession(rows), pa.uint64()),
            "name": c.pick(names, rows % len(names)),
            "homepage": c.keep(
                c.join("https://example.org/data/", library.dataset_id(rows)), draw["page"].chance(rows, 0.7)
            ),
            "version": c.join(c.text(1 + rows // len(names)), ".", c.text(draw["version"].below(rows, 10))),
            "released": c.dates(released),
            "license": c.keep(c.pick(_LICENSES, draw["license"].below(rows, 5)), draw["licensed"].chance(rows, 0.85)),
            "formats": c.lists(formats, count, known),
            "entries": pa.array(entries),
            "size_bytes": pa.array(entries * (20 + draw["bytes"].below(rows, 5_000)), pa.uint64()),
            "split": c.lists(pa.array(shares), np.where(split, _SPLITS.shape[1], 0), split),
            "recorded_at": c.instants(released + 10 * draw["archived"].uniform(rows)),
        },
    )


def notes(library: Library, rows: Ints) -> pa.RecordBatch:
    draw = library.streams
    written = library.noted(rows)
    located = draw["note pages"].chance(rows, 0.5)
    count = np.where(located, draw["note page count"].below(rows, 4), 0)
    page_rows, lanes = repeat_rows(rows, count)
    pages = 1 + draw["note page"].below(page_rows, 5) + lanes * 5
    kind = draw["note kind"].below(rows, len(NOTE_BODIES))
    bodies = [body for choices in NOTE_BODIES.values() for body in choices]
    per_kind = len(bodies) // len(NOTE_BODIES)
    return batch(
        "Note",
        {
            "id": library.note_id(rows),
            "kind": c.pick(list(NOTE_BODIES), kind),
            "body": c.pick(bodies, kind * per_kind + draw["note body"].below(rows, per_kind)),
            "when": c.instants(written),
            "pages": c.lists(pa.array(pages, pa.uint32()), count, located),
            "resolved": c.keep(pa.array(draw["resolved"].chance(rows, 0.5)), kind > 0),
            "source": c.keep(c.pick(("import:mail", "import:forum"), rows % 2), draw["imported"].chance(rows, 0.1)),
            "recorded_at": c.instants(written + draw["filed"].uniform(rows)),
        },
    )


def _prose(library: Library, rows: Ints) -> tuple[pa.Array, pa.Array, Vectors]:
    """Titles, abstracts, and the vectors of the abstracts.

    Terms come from the paper's subject, now and then from another one. Only terms carry meaning in the embedding, so a
    vector is the sum over the terms of its abstract.
    """
    draw = library.streams
    subject = library.subject(rows)
    total = np.zeros((len(rows), DIMENSIONS), dtype=np.float32)
    term_vectors = sums(TERMS)
    pieces: list[pa.Array | str] = []
    title: list[pa.Array | str] = []
    for number, (openings, links, endings) in enumerate(SENTENCES):
        stray = draw["stray term"].chance(rows, 0.3, number)
        other = np.where(stray, draw["other subject"].below(rows, len(SUBJECTS), number), subject)
        first = subject * TERMS_PER_SUBJECT + draw["first term"].below(rows, TERMS_PER_SUBJECT, number)
        second = other * TERMS_PER_SUBJECT + draw["second term"].below(rows, TERMS_PER_SUBJECT, number)
        total += term_vectors[first] + term_vectors[second]
        pieces += [
            c.pick([f"{opening} " for opening in openings], draw["opening"].below(rows, len(openings), number)),
            c.pick(TERMS, first),
            c.pick([f" {link} " for link in links], draw["link"].below(rows, len(links), number)),
            c.pick(TERMS, second),
            c.pick(endings, draw["ending"].below(rows, len(endings), number)),
            " ",
        ]
        if number == 0:
            title = [
                c.pick([term.capitalize() for term in TERMS], first),
                c.pick(TITLE_LINKS, draw["title"].below(rows, len(TITLE_LINKS))),
                c.pick(TERMS, second),
            ]
    return c.join(*title), c.join(*pieces[:-1]), unit(total).round(4)


def _ascii(names: tuple[str, ...]) -> list[str]:
    """Names as they stand in an e-mail address."""
    plain = (unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode() for name in names)
    return ["".join(filter(str.isalpha, name)).lower() or "x" for name in plain]


NodeBatch = Callable[[Library, Ints], pa.RecordBatch]

NODE_BATCHES: dict[str, tuple[NodeBatch, Callable[[Library], int]]] = {
    "Author": (authors, lambda library: library.authors),
    "Paper": (papers, lambda library: library.papers),
    "Venue": (venues, lambda library: library.venues),
    "Institution": (institutions, lambda library: library.institutions),
    "Topic": (topics, lambda library: 1 + len(FIELDS) + len(SUBJECTS)),
    "Dataset": (datasets, lambda library: library.datasets),
    "Note": (notes, lambda library: library.notes),
}
"""How each node type is made, and how many of it there are."""
