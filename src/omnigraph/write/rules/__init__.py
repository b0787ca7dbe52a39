"""Rules: the constraints of the schema, and the one validator that checks them."""
