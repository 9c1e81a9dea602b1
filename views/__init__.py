"""Tables to views: SQL files, registry, planner, maintenance."""
