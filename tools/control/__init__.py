"""What is asked of a job's supervisor from any machine, in a topic of the job's own."""
