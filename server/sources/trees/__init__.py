"""Git trees: what remotes have, what became of each branch, and which revisions are worth measuring."""
