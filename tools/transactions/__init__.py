"""`eo-kafka txn`: transactions found, judged and ended."""
