"""Rounds without workers: simulated, replayed, and named by expressions."""
