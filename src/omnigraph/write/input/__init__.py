"""Input of a load: files, tables and records become raw rows."""
