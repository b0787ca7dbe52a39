"""Schema changes: plan the steps from an accepted schema to a desired one, with their effect on data."""

from omnigraph.lang.schema.migrate.plan import Plan, check_has_types, plan
from omnigraph.lang.schema.migrate.steps import DropMode, Step, Tier

__all__ = ["DropMode", "Plan", "Step", "Tier", "check_has_types", "plan"]
