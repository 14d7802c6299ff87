"""What a program may hear of a running query: progress, lag, metrics, traces."""
