"""Writers of tables: rows staged in PostgreSQL or prepared there, until a batch's decision."""
