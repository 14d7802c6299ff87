"""Snapshots of a checkpoint: taken, found, exported, written back."""
