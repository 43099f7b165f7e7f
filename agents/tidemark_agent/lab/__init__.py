"""Sessions: on the machine that the agent itself runs on, across reboots, and in emulators beside it."""
