"""What a batch is, and whether it is the one that was written."""
