"""Files that hold traces: one format per file."""
