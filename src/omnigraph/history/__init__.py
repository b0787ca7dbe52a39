"""The history of single entities: the commits that changed one, and the commit that set each of its values."""
