"""How work reaches hosts: a port (base.py), its adapters, and the choice of one (choosing.py)."""
