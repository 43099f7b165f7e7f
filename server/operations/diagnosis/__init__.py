"""What is wrong with this site, and which command mends it."""
