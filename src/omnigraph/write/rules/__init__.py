"""Rules: the constraints of the schema, and the validator that checks them."""
