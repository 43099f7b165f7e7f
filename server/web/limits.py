"""What one client may take of a web process."""

from django.conf import settings

# Forms of people, and whatever strangers send: read within this time, and never larger.
FORM_SECONDS = 20.0
FORM_BYTES = 1024 * 1024
# Bodies of agents, of whom the token is known before the first byte is read: so much time, and more for what has come.
UPLOAD_SECONDS = 20.0
UPLOAD_BYTES_A_SECOND = 16 * 1024
# Bodies that are on their way at once: of one token, and of all.
UPLOADS_OF_ONE = 4
UPLOADS_OF_ALL = 32
# After an answer that came before the body was read: so long the rest is taken and dropped, for whoever is still
# sending reads no answer, and a connection closed on unread bytes is reset.
DISCARD_SECONDS = 5.0

# Whole requests that wait for a thread, and how long; another one is told to come again.
MOST_WAITING = 256
WAITING_SECONDS = 10.0

THREADS: int = settings.WEB_THREADS
AGENT_THREADS: int = max(2, settings.WEB_THREADS // 2)
RECYCLE_MB: int = settings.WEB_RECYCLE_MB
MEMORY_MB: int = settings.WEB_MEMORY_MB
