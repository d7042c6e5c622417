"""Whether one fleet of fluid workers under one configuration is never worse than the best static layout (issue: planner)."""
