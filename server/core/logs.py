"""Structured logs: one JSON object a line, constant event names, the same ids in every process."""

import re
from typing import Any

import structlog

# Values of these names never reach a log line.
_SECRET_NAMES = frozenset({"token", "authorization", "password", "secret"})


def _hide_secrets(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for name in event.keys() & _SECRET_NAMES:
        event[name] = "***"
    return event


# Names of mails look like addresses of people, and are none.
_IDS = frozenset({"message_id"})
# The name before the @ alone: whose server refuses us is no secret.
_PERSON = re.compile(r"[A-Za-z0-9._%+'=-]{1,64}@(?=[A-Za-z0-9-]{1,63}\.)")


def _hide_people(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Whoever may read logs learns no address of a person, whatever an error quotes."""
    for name, value in event.items():
        if isinstance(value, str) and "@" in value and name not in _IDS:
            event[name] = _PERSON.sub("***@", value)
    return event


def _shared() -> list[structlog.typing.Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_secrets,
    ]


def structlog_config() -> dict[str, Any]:
    """Keyword arguments for structlog.configure."""
    return {
        "processors": [
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        "logger_factory": structlog.stdlib.LoggerFactory(),
        "wrapper_class": structlog.stdlib.BoundLogger,
        "cache_logger_on_first_use": True,
    }


def logging_config(*, level: str, process: str) -> dict[str, Any]:
    """Django's LOGGING: everything, Django's and Celery's own lines too, leaves as JSON on stderr."""

    def add_process(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["process"] = process
        return event

    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*_shared(), structlog.processors.format_exc_info],
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    add_process,
                    _hide_people,
                    structlog.processors.JSONRenderer(),
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django.server": {
                "handlers": ["stderr"],
                "level": "WARNING",
                "propagate": False,
            },
            "httpx2": {"level": "WARNING"},
        },
    }
