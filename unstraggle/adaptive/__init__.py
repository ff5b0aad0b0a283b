"""Adaptive runs: a code that is chosen from the run's own rounds, and changed when the cluster changes."""
