"""Real machines for tests of the agent: kernels, a system with Python, and QEMU to boot, reset and cut them off.

What is slow to make is kept in .cache/testbed: the first run fetches Debian's kernel source and builds (seven minutes
on two cores), later ones build what has changed. `kernel(BASE)` is a kernel, `run_in_guest` runs one command in it,
`TestMachine` with `system_disk` or `grub_disk` is a machine, `plan_session` a session of the real service for one.
"""
