"""Commands by mail: `#tidemark ...` in answers to our mails, who may give them, what is done and answered."""
