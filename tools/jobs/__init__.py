"""Every job of a cluster: what is known of it, and what may be asked of it."""
