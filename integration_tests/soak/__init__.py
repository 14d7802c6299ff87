"""The soak: three jobs, a nemesis, and a checker of what happened. See docs/soak.md."""
