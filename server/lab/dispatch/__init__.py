"""How work reaches hosts: the adapters of the port (lab/port.py), and the choice of one (choice.py)."""
