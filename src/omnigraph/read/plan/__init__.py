"""The planner: statistics, cost estimates, join order, and the choice of a physical plan."""
