"""What holds for every test."""

from hypothesis import settings

# A busy machine is no reason to fail a property.
settings.register_profile("omnigraph", deadline=None)
settings.load_profile("omnigraph")
