"""Writers of tables: rows staged in PostgreSQL, and applied in one transaction a batch."""
