"""Query results, and conversions to other libraries."""
