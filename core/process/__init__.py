"""What one process keeps between tasks, and what the processes of a driver or a machine share."""
