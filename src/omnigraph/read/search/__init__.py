"""Search: full-text filters and BM25 over inverted indexes, vector distances, and rank fusion."""
