"""JSON: values, and whole columns at once with pyarrow."""
