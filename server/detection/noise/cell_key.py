"""How a cell is named among those of one machine."""

# Primary keys of (case, metric, core type); a core type belongs to one machine.
CellKey = tuple[int, int, int]
