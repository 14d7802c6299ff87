"""The steps S1 to S8 of a batch, in two phases or in one."""
