"""What goes beyond the paper on the embedded task, measured as the replication measures the paper's claims."""
