"""One settings file for every site: what differs comes from the environment (docs/operations/settings.md)."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import environ
import structlog
from csp.constants import NONCE, SELF

from server.core import database, logs
from server.core.addresses import configured_address
from server.env import artifact_storage, one_of, secret

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()
# `make setup` writes this file for the embedded default; what the environment already says goes first.
env.read_env(env.str("TIDEMARK_ENV_FILE", default=str(BASE_DIR / ".local" / "env")))


def _address(name: str, default: str) -> str:
    return configured_address(name, env.str(name, default=default)).rstrip("/")


VERSION = "0.2.0"
# Which of the service's programs this is, in logs and to PostgreSQL.
PROCESS = env.str("TIDEMARK_PROCESS", default="manage")
DEBUG = env.bool("TIDEMARK_DEBUG", default=False)
SECRET_KEY = secret("TIDEMARK_SECRET_KEY")
ALLOWED_HOSTS = env.list("TIDEMARK_ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("TIDEMARK_CSRF_TRUSTED_ORIGINS", default=[])
# Addresses in mails, agents' assignments and reports start with this one.
SITE_URL = _address("TIDEMARK_SITE_URL", "http://127.0.0.1:8000")

INSTALLED_APPS = [
    # Its pages are found where addresses are: workers and beat need none of them.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "server.core",
    "server.sources",
    "server.builds",
    "server.lab",
    # Its tables, its pages of the admin and its command stand and fall with the adapter.
    "server.lab.dispatch.jenkins",
    "server.results",
    "server.detection",
    "server.reports",
    "server.operations",
    "server.api",
    "server.dashboard",
]
MIGRATION_MODULES = {
    app: f"migrations.{app}"
    for app in ("core", "sources", "builds", "lab", "jenkins", "results", "detection", "reports")
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "server.core.middleware.LogContextMiddleware",
    "server.core.middleware.VisibleTextMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "server.core.access.login.KnownBrowserMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
]
ROOT_URLCONF = "server.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "server.dashboard.site.site",
            ]
        },
    }
]

# --- data -----------------------------------------------------------------
DATABASES: dict[str, Any] = {"default": env.db_url_config(secret("TIDEMARK_DATABASE_URL"))}
# Seconds after which a statement is given up, 0: never. Web and workers bring their own limits, migrations have none.
DATABASE_SECONDS = env.float("TIDEMARK_DATABASE_SECONDS", default=0.0)
# The database is reached through a pooler that gives each transaction whichever server is free.
DATABASE_POOLED = env.bool("TIDEMARK_DATABASE_POOLED", default=False)
DATABASES["default"]["OPTIONS"] = {
    **database.options(DATABASE_SECONDS, process=PROCESS, pooled=DATABASE_POOLED),
    **DATABASES["default"].get("OPTIONS", {}),
}
DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = DATABASE_POOLED
DATABASES["default"]["CONN_MAX_AGE"] = 0
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False

# Mirrors, artifacts and the local dispatcher's files.
STATE_DIR = Path(env.str("TIDEMARK_STATE_DIR", default=str(BASE_DIR / ".local" / "state"))).resolve()

# --- tasks: rows are the truth, messages only wake someone up -----------------
CELERY_BROKER_URL = secret("TIDEMARK_REDIS_URL")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 1800,
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 5,
    # Workers wait for messages for a second at a time; what takes so much longer is a server that has fallen silent.
    "socket_timeout": 15,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "global_keyprefix": env.str("TIDEMARK_REDIS_PREFIX", default="tidemark:"),
}
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_RETRY_ON_WORKER_LOST = True
CELERY_TASK_ACKS_ON_FAILURE = True
CELERY_TASK_ACKS_ON_TIMEOUT = True
CELERY_TASK_SOFT_TIME_LIMIT = 240
# Must stay below the visibility timeout, or a long task would run twice at once.
CELERY_TASK_TIME_LIMIT = 300
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_MAX_TASKS_PER_CHILD = 500
# Of one of a worker's processes: memory from which on another takes its place after a task, and memory of which it gets
# no byte more: the task fails, and is given up when it does so again and again (server.core.access.tries).
WORKER_RECYCLE_MB = env.int("TIDEMARK_WORKER_RECYCLE_MB", default=512)
WORKER_MEMORY_MB = max(512, env.int("TIDEMARK_WORKER_MEMORY_MB", default=2048))
# What looks after a worker sees by the file's age that it still takes messages.
ALIVE_FILE = env.str("TIDEMARK_ALIVE_FILE", default="")
CELERY_WORKER_MAX_MEMORY_PER_CHILD = WORKER_RECYCLE_MB * 1024
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

# --- what this site does ------------------------------------------------------
# Mail servers whose Authentication-Results count: SERVER, or LIST=SERVER for mails of one list. They must remove those
# that mails from outside bring along.
AUTHSERV_IDS = frozenset(name.lower() for name in env.list("TIDEMARK_AUTHSERV_IDS", default=[]))
# Who is asked for the keys of mail domains: ADDRESS or IPV4:PORT; empty: the name servers of this host.
DNS_SERVERS = env.list("TIDEMARK_DNS_SERVERS", default=[])
# A demo or test site judges virtual machines among themselves; elsewhere they are stored and not judged.
VIRTUAL_VERDICTS = env.bool("TIDEMARK_VIRTUAL_VERDICTS", default=False)
# Whatever is here was made up by a program: every page says so.
SIMULATED = env.bool("TIDEMARK_SIMULATED", default=False)
# Where agents find this service; differs from SITE_URL behind a proxy.
AGENT_URL = _address("TIDEMARK_AGENT_URL", SITE_URL)
DISPATCHER = env.str("TIDEMARK_DISPATCHER", default="local")
# The site's Jenkins controller (docs/operations/jenkins.md), used where DISPATCHER is "jenkins".
JENKINS_URL = _address("TIDEMARK_JENKINS_URL", "")
JENKINS_USER = env.str("TIDEMARK_JENKINS_USER", default="dispatcher")
# Read at each use: tokens expire, and the new one must not need a restart.
JENKINS_TOKEN_FILE = env.str("TIDEMARK_JENKINS_TOKEN_FILE", default="")
JENKINS_CA_FILE = env.str("TIDEMARK_JENKINS_CA_FILE", default="")
JENKINS_PREFIX = env.str("TIDEMARK_JENKINS_PREFIX", default="tidemark-")
# The agent program on the nodes, as the jobs call it.
JENKINS_AGENT = env.str("TIDEMARK_JENKINS_AGENT", default="/usr/local/bin/tidemark-agent")
# Where each node has a folder of its own, for what Jenkins' agents put down.
JENKINS_FOLDER = env.str("TIDEMARK_JENKINS_FOLDER", default="/var/lib/jenkins-agent").rstrip("/")
JENKINS_TIMEOUT_SECONDS = env.float("TIDEMARK_JENKINS_TIMEOUT_SECONDS", default=10.0)
# Node label of the always-on host that switches machines off and on.
LAB_CONTROL = env.str("TIDEMARK_LAB_CONTROL", default="lab-control")
# What opens private trees and archives: lines https://USER:PASSWORD@HOST, each for its host alone. Git asks for it
# when a server does; it is on no command line, in no row and on no page.
GIT_CREDENTIALS = env.str("TIDEMARK_GIT_CREDENTIALS", default="")
# Where builders fetch commits; empty: the mirror's own path, for builders on this host.
MIRROR_URL = _address("TIDEMARK_MIRROR_URL", "")
# How much the local dispatcher runs at once: a kernel build takes all of it, a counting virtual machine 1.
LOCAL_SLOTS = env.int("TIDEMARK_LOCAL_SLOTS", default=2)
# What a collector of metrics shows, as a bearer token, read at each use; empty: /metrics answers this host alone, and
# nobody where SITE_URL is an address for others.
METRICS_TOKEN_FILE = env.str("TIDEMARK_METRICS_TOKEN_FILE", default="")
# Who starts them: this service's worker, or `tidemark-agent serve` beside it, in a container that holds no secrets.
LOCAL_AGENTS = one_of("TIDEMARK_LOCAL_AGENTS", "here", "apart")
LOCAL_AGENT = env.str("TIDEMARK_LOCAL_AGENT", default=str(BASE_DIR / ".local" / "tidemark-agent.pyz"))
# A patch's Makefile is its author's program: builders run it in a sandbox. "none" is for hosts that are one.
BUILD_SANDBOX = one_of("TIDEMARK_BUILD_SANDBOX", "bwrap", "none")
# Whether builders refuse to build where no memory cgroup counts what a build takes of the kernel's own memory.
BUILD_CGROUP = one_of("TIDEMARK_BUILD_CGROUP", "required", "optional")
# How git is shut off while it reads and applies mails of strangers.
APPLY_SANDBOX = one_of("TIDEMARK_APPLY_SANDBOX", "bwrap", "none")
# What one build may take at most: all its processes together, what they write, what it prints, and their time.
BUILD_TIMEOUT_SECONDS = env.int("TIDEMARK_BUILD_TIMEOUT_SECONDS", default=3600)
BUILD_MEMORY_MB = env.int("TIDEMARK_BUILD_MEMORY_MB", default=16_384)
BUILD_PROCESSES = 4096
BUILD_DISK_MB = env.int("TIDEMARK_BUILD_DISK_MB", default=65_536)
BUILD_LOG_MB = 64
BUILD_CPU_SECONDS = 3600
# Days without use after which files of kernels go (0: never), gigabytes that all may take (0: no limit), days of logs.
ARTIFACT_DAYS = env.float("TIDEMARK_ARTIFACT_DAYS", default=30.0)
ARTIFACT_GB = env.float("TIDEMARK_ARTIFACT_GB", default=0.0)
LOG_DAYS = env.float("TIDEMARK_LOG_DAYS", default=365.0)
# For how many months the database keeps what was measured, by kind; then it goes to the archive. 0: for ever.
KEEP_MONTHS = {
    "samples": max(0, env.int("TIDEMARK_KEEP_SAMPLES_MONTHS", default=0)),
    "conditions": max(0, env.int("TIDEMARK_KEEP_CONDITIONS_MONTHS", default=0)),
    "transitions": max(0, env.int("TIDEMARK_KEEP_TRANSITIONS_MONTHS", default=0)),
    "logs": max(0, env.int("TIDEMARK_KEEP_LOGS_MONTHS", default=0)),
}
# How a bucket's name stands in its address: "path" suits servers of one's own, "virtual" the large providers.
ARTIFACT_S3_ADDRESSING = env.str("TIDEMARK_ARTIFACT_S3_ADDRESSING", default="path")
LEASE_SECONDS = env.int("TIDEMARK_LEASE_SECONDS", default=60)
# How long a token of an agent lives; agents renew theirs when two thirds of that are over.
TOKEN_DAYS = max(1.0, env.float("TIDEMARK_TOKEN_DAYS", default=180.0))
# Machine time of one series, from which on no more boots are asked for; 0: no limit.
SERIES_HOURS = env.float("TIDEMARK_SERIES_HOURS", default=24.0)
# Hours between two A/A trials of an idle machine, 0: none; boots a side (two are the fewest that have a spread); and
# the time limits of cases that one of their sessions may add up to.
NOISE_HOURS = env.float("TIDEMARK_NOISE_HOURS", default=24.0)
NOISE_BOOTS = 4
NOISE_SESSION_HOURS = 4.0
# Boots a side of each head of a tree against its reference, 0: none is measured; hours for which later heads wait for
# an earlier one; machine time of the fresh boots that confirm one suspected change.
HEAD_BOOTS = max(0, env.int("TIDEMARK_HEAD_BOOTS", default=3))
HEAD_PATIENCE_HOURS = 24.0
CONFIRM_HOURS = 24.0
# Machine time that one bisection may take (0: nothing is bisected), and the longest series whose patches are measured
# one by one without being asked for (0: none).
BISECT_HOURS = env.float("TIDEMARK_BISECT_HOURS", default=24.0)
WALK_PATCHES = env.int("TIDEMARK_WALK_PATCHES", default=0)
# Seconds between two looks of the sweeps that find what a lost message left.
SWEEP_SECONDS = env.float("TIDEMARK_SWEEP_SECONDS", default=10.0)

# --- mail ------------------------------------------------------------------------
MAIL_ENABLED = env.bool("TIDEMARK_MAIL_ENABLED", default=False)
MAIL_FROM = env.str("TIDEMARK_MAIL_FROM", default="Tidemark <tidemark@localhost>")
MAIL_MAX_RECIPIENTS = 20
MAIL_HOURLY_CAP = env.int("TIDEMARK_MAIL_HOURLY_CAP", default=10)
EMAIL_HOST = env.str("TIDEMARK_SMTP_HOST", default="127.0.0.1")
EMAIL_PORT = env.int("TIDEMARK_SMTP_PORT", default=25)
EMAIL_HOST_USER = env.str("TIDEMARK_SMTP_USER", default="")
EMAIL_HOST_PASSWORD = secret("TIDEMARK_SMTP_PASSWORD", default="-") if EMAIL_HOST_USER else ""
EMAIL_USE_TLS = env.bool("TIDEMARK_SMTP_STARTTLS", default=False)
EMAIL_TIMEOUT = 20
EMAIL_BACKEND = "server.reports.sending.wire.MailWire"
# Where mails of people go that answer a report; empty: to MAIL_FROM.
MAIL_REPLY_TO = env.str("TIDEMARK_MAIL_REPLY_TO", default="")
# Where mail servers send back what they do not take, as NAME+NUMBER.MARK@DOMAIN, one for each delivery.
MAIL_BOUNCES = env.str("TIDEMARK_MAIL_BOUNCES", default="")
# Private keys that sign mails, SELECTOR=FILE, and their domain if it is not that of MAIL_FROM.
DKIM_KEYS = env.list("TIDEMARK_DKIM_KEYS", default=[])
DKIM_DOMAIN = env.str("TIDEMARK_DKIM_DOMAIN", default="")
# HOST:PORT of the site's own sink, the only way out for a report about virtual machines.
MAIL_SINK = env.str("TIDEMARK_MAIL_SINK", default="")

# --- other systems ---------------------------------------------------------------
# Private networks in which webhooks of subscriptions may lie, as 10.0.0.0/8; empty: none.
HOOK_NETWORKS = tuple(ip_network(network.strip()) for network in env.list("TIDEMARK_HOOK_NETWORKS", default=[]))
# Where checks of series and reports of findings are sent, once their mail has left; empty: nowhere.
PATCHWORK_URL = configured_address("TIDEMARK_PATCHWORK_URL", env.str("TIDEMARK_PATCHWORK_URL", default=""))
PATCHWORK_TOKEN = secret("TIDEMARK_PATCHWORK_TOKEN") if PATCHWORK_URL else ""
KCIDB_URL = configured_address("TIDEMARK_KCIDB_URL", env.str("TIDEMARK_KCIDB_URL", default=""))
KCIDB_TOKEN = secret("TIDEMARK_KCIDB_TOKEN") if KCIDB_URL else ""
# As which this site reports there: lower case letters, digits and _.
KCIDB_ORIGIN = env.str("TIDEMARK_KCIDB_ORIGIN", default="tidemark")

# --- web -------------------------------------------------------------------------
# Of one web process: threads that answer people (agents and files have half as many each beside them), memory from
# which on another process takes its place, and memory of which it gets no byte more.
WEB_THREADS = max(1, env.int("TIDEMARK_WEB_THREADS", default=8))
WEB_RECYCLE_MB = env.int("TIDEMARK_WEB_RECYCLE_MB", default=1024)
WEB_MEMORY_MB = max(512, env.int("TIDEMARK_WEB_MEMORY_MB", default=2048))
# Bodies that are on their way; nothing in it has a name or outlives its process.
UPLOAD_DIR = STATE_DIR / "uploads"
STATIC_URL = "/static/"
STATIC_ROOT = Path(env.str("TIDEMARK_STATIC_ROOT", default=str(BASE_DIR / "staticfiles")))
STATICFILES_DIRS: list[tuple[str, Path]] = [
    ("vendor/uplot", BASE_DIR / "node_modules" / "uplot" / "dist"),
    ("vendor/htmx", BASE_DIR / "node_modules" / "htmx.org" / "dist"),
]
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "artifacts": artifact_storage(env),
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
# Pages name files by their hash only. Source maps are for debuggers: compressing them took longer than all the rest.
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
WHITENOISE_SKIP_COMPRESS_EXTENSIONS = ("map", "gz", "br", "jpg", "png", "webp", "woff", "woff2")
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
BEHIND_TLS = env.bool("TIDEMARK_BEHIND_TLS", default=False)
# Addresses and networks of the site's own proxies: only what these say about who asks is believed.
TRUSTED_PROXIES = tuple(
    ip_network(network.strip()) for network in env.list("TIDEMARK_TRUSTED_PROXIES", default=["127.0.0.1", "::1"])
)
# Django's own are /accounts/profile/ and /accounts/login/, which this site has not.
LOGIN_URL = "login"
CSRF_FAILURE_VIEW = "server.dashboard.frame.access.csrf_failure"
LOGIN_REDIRECT_URL = LOGOUT_REDIRECT_URL = "home"
AUTHENTICATION_BACKENDS = ["server.core.access.login.GuardedBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
SECURE_SSL_REDIRECT = BEHIND_TLS
# Supervisors ask the process itself, without the proxy that speaks TLS.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
# How much of its domain a site speaks for, "host", "subdomains" or "preload": other hosts of it may be somebody else's,
# and preloading cannot be taken back soon. So both are for the owner of the domain to ask for, and no slip without.
HSTS = one_of("TIDEMARK_HSTS", "host", "subdomains", "preload")
SECURE_HSTS_INCLUDE_SUBDOMAINS = HSTS != "host"
SECURE_HSTS_PRELOAD = HSTS == "preload"
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
if BEHIND_TLS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "frame-ancestors": ["'none'"],
        "base-uri": [SELF],
        "form-action": [SELF],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["server.api.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "server.api.formats.TableSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "server.api.pagination.Pages",
    "PAGE_SIZE": 50,
    "EXCEPTION_HANDLER": "server.api.problems.handle",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tidemark",
    "DESCRIPTION": "What a change to the Linux kernel costs, per microarchitecture.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "DEFAULT_GENERATOR_CLASS": "server.api.schema.OnceGenerator",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "OAS_VERSION": "3.1.0",
    "ENUM_NAME_OVERRIDES": {
        "ArtifactKind": "server.builds.models.Artifact.Kind",
        "FindingKind": "server.detection.models.Finding.Kind",
        "FindingState": "server.detection.models.FindingState",
        "SeriesState": "server.sources.models.SeriesState",
        "TrialState": "server.lab.models.TrialState",
        "Pace": "server.reports.models.Subscription.Pace",
        "ReportKind": "server.reports.models.Report.Kind",
        "ReportState": "server.reports.models.ReportState",
        "HostState": "server.lab.models.Host.State",
        "HeadMoveKind": "server.sources.models.HeadMove.Kind",
        "MessageKind": "server.sources.models.Message.Kind",
        "ProgressState": "server.api.v1.series.PROGRESS_STATES",
    },
}

# --- logs: one JSON object a line on stderr -----------------------------------------
LOGGING = logs.logging_config(
    level=env.str("TIDEMARK_LOG_LEVEL", default="INFO"),
    process=PROCESS,
)
structlog.configure(**logs.structlog_config())
