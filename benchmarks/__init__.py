"""Speed as ratios within one run, results as JSON in benchmarks/results."""
