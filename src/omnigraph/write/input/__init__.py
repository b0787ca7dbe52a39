"""Input of a load: reads files, tables and records into raw rows."""
