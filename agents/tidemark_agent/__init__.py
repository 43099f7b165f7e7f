"""The program that runs in the lab: builds kernels, boots them, measures, and hands the results to the service."""
