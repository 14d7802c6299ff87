"""A job's ledger: its records, its topics, its only writer."""
