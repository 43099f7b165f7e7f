"""public-inbox archives: their epochs, copied and read, whatever was deleted or rewritten."""
