"""Results: what a query gives, in the forms that others take."""
