"""Running benchmark cases on the system the agent itself runs on."""
