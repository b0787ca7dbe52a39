"""One library: how much of everything there is, and the facts that nodes and edges must agree on.

Nothing is stored. A fact about row i is computed from the seed and i whenever somebody asks, so memory does not grow
with the library, and an edge can look up the date of its endpoint without having generated it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from papers import columns
from papers.randomness import Bools, Floats, Ints, Streams, first_of_each, repeat_rows, zipf_thresholds
from papers.vocabulary import FIELDS, SUBJECTS

FIRST_DAY = 9_131  # 1995-01-01
LAST_DAY = 20_269  # 2025-06-30
FIRST_YEAR = 1995
YEARS = 31
SERIES = tuple(series for _, pair in FIELDS.values() for series in pair.split())

STATUSES = ("draft", "submitted", "published", "retracted")
KINDS = ("article", "preprint", "survey", "technical-report", "thesis")
DRAFT, SUBMITTED, PUBLISHED, RETRACTED = range(4)
ARTICLE, PREPRINT, SURVEY, REPORT, THESIS = range(5)

_SUBJECT_COUNT = len(SUBJECTS)
_THRESHOLDS = zipf_thresholds(_SUBJECT_COUNT)
_FIELD_OF_SUBJECT = np.array([list(FIELDS).index(subject.field) for subject in SUBJECTS])
_KIND_SHARES = np.cumsum([0.62, 0.2, 0.08, 0.06, 0.04])
_ORCID_MODULUS = 9_999_999_967  # the largest prime below ten digits: multiplying modulo it never repeats
_ROR_ALPHABET = np.frombuffer(b"0123456789abcdefghjkmnpqrstvwxyz", dtype=np.uint8)


class Library:
    """A library of a given size. Rows of each type are numbered from 0."""

    def __init__(self, papers: int, seed: int) -> None:
        if papers < 1:
            raise ValueError("a library needs at least one paper")
        self.papers = papers
        self.authors = max(2 * _SUBJECT_COUNT, papers * 2 // 5)
        self.institutions = max(8, papers // 80)
        self.datasets = max(8, papers // 25)
        self.notes = max(8, papers // 8)
        self.venues = len(SERIES) * YEARS
        self.streams = Streams(seed)

    # ---- papers ----

    def subject(self, papers: Ints) -> Ints:
        """The main subject of each paper."""
        drawn = np.searchsorted(_THRESHOLDS, self.streams["subject"].uniform(papers), side="right")
        return np.minimum(drawn, _SUBJECT_COUNT - 1)

    def day(self, papers: Ints) -> Ints:
        """The day a paper appears. Later papers have higher numbers, and there are more of them every year."""
        share = np.sqrt((papers + 0.5) / self.papers)
        return FIRST_DAY + (share * (LAST_DAY - FIRST_DAY)).astype(np.int64)

    def submitted(self, papers: Ints) -> Floats:
        return self.day(papers) - 30 - 270 * self.streams["submitted"].uniform(papers)

    def status(self, papers: Ints) -> Ints:
        """Mostly published; the newest are still on their way."""
        chance = self.streams["status"].uniform(papers)
        pending = np.where(chance < 0.4, DRAFT, SUBMITTED)
        done = np.where(chance < 0.006, RETRACTED, PUBLISHED)
        return np.where(papers >= self.papers * 0.96, pending, done)

    def kind(self, papers: Ints) -> Ints:
        drawn = np.searchsorted(_KIND_SHARES, self.streams["kind"].uniform(papers), side="right")
        return np.minimum(drawn, len(KINDS) - 1)

    def appeared(self, papers: Ints) -> Bools:
        return self.status(papers) >= PUBLISHED

    def venue(self, papers: Ints) -> Ints:
        """The venue of each paper, were it published in one."""
        field = _FIELD_OF_SUBJECT[self.subject(papers)]
        series = field * 2 + self.streams["series"].below(papers, 2)
        return series * YEARS + columns.years(self.day(papers)) - FIRST_YEAR

    def byline(self, papers: Ints) -> tuple[Ints, Ints]:
        """Papers and their authors in byline order, one entry for each authorship."""
        counts = self.streams["byline"].heavy(papers, 1.8, 12)
        rows, lanes = repeat_rows(papers, counts)
        authors = self.author_near(self.subject(rows), rows, lanes, "byline author")
        kept = first_of_each(rows, authors)
        return rows[kept], authors[kept]

    # ---- authors: author a works on subject a mod 24, and the first of each subject write the most ----

    def author_near(self, subjects: Ints, rows: Ints, lanes: Ints | int, purpose: str) -> Ints:
        """An author for each row, mostly of the given subject and mostly a prolific one."""
        stray = self.streams[f"{purpose}: stray"].chance(rows, 0.25, lanes)
        other = self.streams[f"{purpose}: other"].below(rows, _SUBJECT_COUNT, lanes)
        subject = np.where(stray, other, subjects)
        rank = self.streams[purpose].skewed(rows, self._colleagues(subject), lanes)
        return rank * _SUBJECT_COUNT + subject

    def senior(self, authors: Ints, lanes: Ints) -> Ints:
        """A colleague of the same subject who comes before the author; the very first has none."""
        rank = self.streams["senior"].below(authors, authors // _SUBJECT_COUNT, lanes)
        return rank * _SUBJECT_COUNT + authors % _SUBJECT_COUNT

    def has_senior(self, authors: Ints) -> Bools:
        return authors >= _SUBJECT_COUNT

    def author_rank(self, authors: Ints) -> Ints:
        return authors // _SUBJECT_COUNT

    def career_start(self, authors: Ints) -> Ints:
        """The day an author's career begins: before or during the library's years, seniors first."""
        span = LAST_DAY - FIRST_DAY - 2_000
        return FIRST_DAY - 3_000 + authors * span // self.authors + self.streams["career"].below(authors, 2_000)

    def _colleagues(self, subjects: Ints) -> Ints:
        return (self.authors - subjects + _SUBJECT_COUNT - 1) // _SUBJECT_COUNT

    # ---- notes ----

    def annotated(self, notes: Ints) -> Ints:
        """The paper that each note is about."""
        return self.streams["annotated"].skewed(notes, self.papers)

    def noted(self, notes: Ints) -> Floats:
        """When each note was written: some time after its paper appeared."""
        return self.day(self.annotated(notes)) + 2_000 * self.streams["noted"].uniform(notes)

    # ---- ids, as edges refer to them ----

    def doi(self, papers: Ints) -> pa.StringArray:
        return columns.join("10.5555/papers.", columns.digits(papers, 9))

    def orcid(self, authors: Ints) -> pa.StringArray:
        """Well-formed ORCID ids, the check digit included."""
        numbers = (authors * 6_180_339_887 + 2_718_281_828) % _ORCID_MODULUS
        figures = columns.digit_codes(numbers, 15)
        total = np.zeros(len(authors), dtype=np.int64)
        for position in range(15):
            total = (total + figures[:, position]) * 2
        check = (12 - total % 11) % 11
        codes = np.full((len(authors), 19), ord("-"), dtype=np.uint8)
        places = [*range(4), *range(5, 9), *range(10, 14), *range(15, 18)]
        codes[:, places] = figures + ord("0")
        codes[:, 18] = np.where(check == 10, ord("X"), check + ord("0"))
        return columns.characters(codes)

    def venue_id(self, venues: Ints) -> pa.StringArray:
        series, year = columns.pick(SERIES, venues // YEARS), columns.text(venues % YEARS + FIRST_YEAR)
        return columns.join('["', series, '","', year, '"]')

    def ror(self, institutions: Ints) -> pa.StringArray:
        numbers = (institutions * 654_435_769 + 161_803_399) % 32**6
        letters = _ROR_ALPHABET[columns.digit_codes(numbers, 6, base=32)]
        check = columns.digit_codes(98 - numbers * 100 % 97, 2) + ord("0")
        zero = np.full((len(institutions), 1), ord("0"))
        return columns.characters(np.hstack((zero, letters, check)).astype(np.uint8))

    def accession(self, datasets: Ints) -> Ints:
        return 100_003 + datasets * 7

    def dataset_id(self, datasets: Ints) -> pa.StringArray:
        return columns.text(self.accession(datasets))

    def note_id(self, notes: Ints) -> pa.StringArray:
        return columns.join("note-", columns.digits(notes, 9))

    def topic_id(self, subjects: Ints) -> pa.StringArray:
        return columns.pick([subject.slug for subject in SUBJECTS], subjects)
