"""What machines show by themselves: A/A trials, the noise of cells, machines that drift, questions about machines."""
