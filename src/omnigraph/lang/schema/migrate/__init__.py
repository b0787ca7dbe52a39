"""Schema changes: what it takes to turn an accepted schema into a desired one, and what that does to data."""

from omnigraph.lang.schema.migrate.plan import Plan, plan
from omnigraph.lang.schema.migrate.steps import DropMode, Step, Tier

__all__ = ["DropMode", "Plan", "Step", "Tier", "plan"]
