"""Files as a target: staged, shown by a manifest, published, read."""
