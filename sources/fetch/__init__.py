"""Fetches records into Arrow batches: in compiled loops, or in plain Python."""
