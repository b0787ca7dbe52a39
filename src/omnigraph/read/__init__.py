"""Reads of one snapshot: queries, searches, exports and blobs."""
