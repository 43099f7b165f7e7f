"""How work reaches hosts: the adapters of the port (lab/port.py), which names them."""
