"""Tokenize a whole text column at once.

Texts are first split into pieces at bytes that certainly separate tokens, such as spaces. A piece contains one or more
whole tokens. The same pieces occur many times, so the text analyzer runs only once per distinct piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.entity_table import as_one_array
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.columns.sorting import dense_ranks, order_of
from omnigraph.storage.text_analysis import words_of

Places = npt.NDArray[np.int32]

TEXT_CHUNK_BYTES = 1 << 22
"""Bytes of text that are split at a time. A read can be stopped between chunks."""

PIECE_CHUNK_BYTES = 1 << 18
"""Bytes of pieces that are analysed at a time."""

_SPACES = b" \t\n\x0c\r"
_CONTROLS = [chr(code) for code in (*range(1, 32), 127) if code not in _SPACES]

_NONE: Numbers = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Token occurrences of a range of texts, in the order of the texts.

    Attributes:
        word: the word, as an index into the vocabulary.
        text: the text, as an index into the column.
        place: position of the token in the text, counted in tokens.
    """

    word: Places
    text: Places
    place: Places


class Occurrences:
    """Token occurrences of a text column. Iterating over this object yields batches. Null texts have no tokens.

    Attributes:
        vocabulary: distinct words, sorted.
        counts: number of occurrences of each word.
    """

    def __init__(self, texts: pa.Array, analyzer: ir.Analyzer) -> None:
        cut, self._homes = [pa.array([], pa.utf8()).dictionary_encode()], [np.zeros(0, np.int32)]
        for start, part in _text_chunks(texts):
            pieces, home = _pieces(part, analyzer.tokenizer)
            cut.append(pieces.dictionary_encode())
            self._homes.append((home + start).astype(np.int32))
        whole = pa.chunked_array(cut).unify_dictionaries()
        distinct = whole.chunk(0).dictionary
        self._pieces = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in whole.chunks]
        self._analysed = _analyse(distinct, analyzer)
        self.vocabulary = self._analysed.vocabulary
        counts = np.zeros(len(distinct), np.int64)
        for pieces in self._pieces:
            counts += np.bincount(pieces, minlength=len(distinct))
        times = np.repeat(counts, np.diff(self._analysed.first))
        self.counts: Numbers = np.bincount(self._analysed.word, times, len(self.vocabulary)).astype(np.int64)

    def __iter__(self) -> Iterator[TokenBatch]:
        for pieces, homes in zip(self._pieces, self._homes, strict=True):
            checkpoint()
            yield _token_batch(self._analysed, pieces, homes)


# Split


def _text_chunks(texts: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """Split a column into chunks of about `TEXT_CHUNK_BYTES`. Yields the index of the first text, and the texts."""
    texts = pc.fill_null(texts, "").cast(pa.large_utf8())
    for start, end in _cuts(texts, TEXT_CHUNK_BYTES):
        yield start, texts.slice(start, end - start)


def _cuts(texts: pa.Array, size: int) -> Iterator[tuple[int, int]]:
    """Split texts into chunks of about `size` bytes. Yields the first index and the end (exclusive) of each chunk."""
    ends = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False), dtype=np.int64)
    start = 0
    while start < len(texts):
        checkpoint()
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + size, "right")), start + 1)
        yield start, end
        start = end


def _pieces(texts: pa.Array, tokenizer: str) -> tuple[pa.Array, Numbers]:
    """Split texts into pieces that contain whole tokens.

    Returns the pieces, and the index of the text of each piece.
    """
    if tokenizer == "raw":
        has_text = np.flatnonzero(pc.not_equal(texts, "").to_numpy(zero_copy_only=False))
        return texts.take(pa.array(has_text)).cast(pa.utf8()), has_text
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    if begin == end:
        return pa.array([], pa.utf8()), np.zeros(0, np.int64)
    data = np.frombuffer(texts.buffers()[2], np.uint8)[begin:end]
    offsets = offsets - begin
    inside = _INSIDE[tokenizer][data]
    before = np.concatenate([[False], inside[:-1]])
    before[offsets[:-1][offsets[:-1] < len(data)]] = False
    after = np.concatenate([inside[1:], [False]])
    after[offsets[1:][offsets[1:] > 0] - 1] = False
    starts = np.flatnonzero(inside & ~before)
    lengths = np.flatnonzero(inside & ~after) + 1 - starts
    places = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    words = pa.Array.from_buffers(
        pa.utf8(), len(starts), [None, pa.py_buffer(places), pa.py_buffer(np.ascontiguousarray(data[inside]))]
    )
    return words, np.searchsorted(offsets, starts, "right") - 1


def _table(inside: Sequence[int]) -> Mask:
    table = np.zeros(256, bool)
    table[list(inside)] = True
    return table


_LETTERS = [byte for byte in range(128) if chr(byte).isalnum()]
_INSIDE = {
    # Only the analyzer can decide which non-ASCII characters separate tokens, so pieces are not split at them.
    "simple": _table([*_LETTERS, *range(128, 256)]),
    "whitespace": _table([byte for byte in range(256) if byte not in _SPACES]),
}


# Analyse


@dataclass(frozen=True, slots=True)
class _Analysed:
    """Tokens of each distinct piece.

    Attributes:
        vocabulary: distinct words, sorted.
        width: number of token positions in each piece. Tokens that the analyzer drops have positions, too.
        first: index in `word` of the first token of each piece, and then the number of all tokens.
        word: tokens of all pieces, concatenated, as indices into the vocabulary.
        place: position of each token in its piece, counted in tokens.
    """

    vocabulary: pa.Array
    width: Numbers
    first: Numbers
    word: Numbers
    place: Numbers


def _analyse(pieces: pa.Array, analyzer: ir.Analyzer) -> _Analysed:
    width = np.ones(len(pieces), np.int64)
    words, piece, place = [pa.array([], pa.utf8()).dictionary_encode()], [_NONE], [_NONE]
    for start, end in _cuts(pieces, PIECE_CHUNK_BYTES):
        found, of, at, wide = _words_in(pieces.slice(start, end - start), analyzer)
        words.append(pa.array(found, pa.utf8()).dictionary_encode())
        piece.append(of + start)
        place.append(at)
        width[start:end] = wide
    whole = pa.chunked_array(words).unify_dictionaries()
    vocabulary = whole.chunk(0).dictionary
    rank = dense_ranks(vocabulary) - 1
    by_text = np.empty(len(vocabulary), np.int64)
    by_text[rank] = np.arange(len(vocabulary))
    word = rank[np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in whole.chunks])]
    pieces_of, places = np.concatenate(piece), np.concatenate(place)
    order = order_of(pieces_of, places)
    first = np.concatenate([[0], np.cumsum(np.bincount(pieces_of, minlength=len(pieces)))])
    return _Analysed(as_one_array(vocabulary.take(pa.array(by_text))), width, first, word[order], places[order])


def _words_in(pieces: pa.Array, analyzer: ir.Analyzer) -> tuple[list[str], Numbers, Numbers, Numbers]:
    """Tokenize pieces.

    Returns the tokens, the piece and position of each token, and the number of positions per piece.
    """
    width = np.ones(len(pieces), np.int64)
    if analyzer.tokenizer != "simple":
        among = _whole_texts if analyzer.tokenizer == "raw" else _single_words
        words, piece = among(pieces.to_pylist(), analyzer)
        return words, piece, np.zeros(len(piece), np.int64), width
    plain = pc.string_is_ascii(pieces).to_numpy(zero_copy_only=False)
    singles, others = np.flatnonzero(plain), np.flatnonzero(~plain)
    words, at = _single_words(pieces.take(pa.array(singles)).to_pylist(), analyzer)
    more, other, offset, wide = _several_words(pieces.take(pa.array(others)).to_pylist(), analyzer)
    width[others] = wide
    place = np.concatenate([np.zeros(len(at), np.int64), offset])
    return words + more, np.concatenate([singles[at], others[other]]), place, width


def _single_words(pieces: list[str], analyzer: ir.Analyzer) -> tuple[list[str], Numbers]:
    """Tokens of pieces. Each piece is one token.

    Returns the tokens that the analyzer keeps, and the piece of each token.
    """
    # The analyzer counts positions from the first token that it keeps. So the text starts with the token "0", which
    # the analyzer always keeps.
    words, places = words_of(" ".join(["0", *pieces]), analyzer)
    return words[1:], np.array(places[1:], np.int64) - 1


def _several_words(pieces: list[str], analyzer: ir.Analyzer) -> tuple[list[str], Numbers, Numbers, Numbers]:
    """Tokens of pieces, each of which can have several tokens. Returns the same values as `_words_in`."""
    for number in count(1_000_000):
        mark = str(number)
        found, places = words_of(f"{mark} " + "".join(f"{piece} {mark} " for piece in pieces), analyzer)
        words, place = np.array(found, object), np.array(places, np.int64)
        marks = words == mark
        if int(marks.sum()) == len(pieces) + 1:
            break
    begins = place[marks]
    piece = np.cumsum(marks)[~marks] - 1
    return list(words[~marks]), piece, place[~marks] - begins[piece] - 1, np.diff(begins) - 1


def _whole_texts(pieces: list[str], analyzer: ir.Analyzer) -> tuple[list[str], Numbers]:
    """Tokens of texts, if each whole text is one token, which may contain spaces."""
    if len(pieces) == 1:
        words, _ = words_of(pieces[0], analyzer)
        return words, np.zeros(len(words), np.int64)
    # Spaces and text boundaries are replaced by control characters that occur in no text. The analyzer neither changes
    # nor produces these characters.
    letters = set().union(*pieces)
    spaces = [space for space in _SPACES.decode() if space in letters]
    free = [letter for letter in _CONTROLS if letter not in letters]
    if len(free) <= len(spaces):
        half = len(pieces) // 2
        (words, piece), (more, other) = _whole_texts(pieces[:half], analyzer), _whole_texts(pieces[half:], analyzer)
        return words + more, np.concatenate([piece, other + half])
    end, *marks = free[: len(spaces) + 1]
    hidden = str.maketrans(dict(zip(spaces, marks, strict=True)) | {end: " "})
    words, piece = _single_words(
        end.join(pieces).translate(hidden).split(" "), replace(analyzer, tokenizer="whitespace")
    )
    shown = str.maketrans(dict(zip(marks, spaces, strict=True)))
    return end.join(words).translate(shown).split(end) if words else [], piece


def _token_batch(analysed: _Analysed, piece: Places, home: Places) -> TokenBatch:
    """The token occurrences of pieces. `home` is the index of the text that each piece belongs to."""
    width = analysed.width[piece]
    begins = np.cumsum(width) - width
    opening = np.flatnonzero(np.diff(home, prepend=-1))  # the first piece of each text
    begins -= np.repeat(begins[opening], np.diff(np.append(opening, len(piece))))
    repeats = np.diff(analysed.first)[piece]
    owner = np.repeat(np.arange(len(piece)), repeats)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    at = analysed.first[piece[owner]] + within
    return TokenBatch(
        analysed.word[at].astype(np.int32), home[owner], (begins[owner] + analysed.place[at]).astype(np.int32)
    )
