"""Files that hold traces: one format a file."""
