"""Whether all that is stored is what the measurements give now; nothing of it is changed."""
