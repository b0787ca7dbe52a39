"""Writing: rows are built and checked here, before anything moves."""
