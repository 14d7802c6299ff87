"""Plan and read: offsets on the driver, Arrow batches on the executors."""
