"""How a mail leaves the site: its bytes, its signature, the way to the mail server, and what comes back."""
