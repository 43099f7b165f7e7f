"""Write docs/api/openapi.json, the contract of the API, as the code describes it now: `make openapi`.

The tests compare the two. What a change takes away from its readers is seen in the diff of that file, and refused
there unless a new version of the API says so.
"""

import json
import os
from pathlib import Path
from typing import Any

CONTRACT = Path(__file__).resolve().parent.parent / "docs/api/openapi.json"


def described() -> dict[str, Any]:
    """The description, with its keys in order; Django is set up."""
    from drf_spectacular.generators import SchemaGenerator  # noqa: PLC0415 (it reads the settings)

    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    ordered: dict[str, Any] = json.loads(as_text(made))
    return ordered


def as_text(description: dict[str, Any]) -> str:
    return json.dumps(description, indent=1, sort_keys=True, ensure_ascii=False, default=str) + "\n"


def main() -> None:
    # Nothing is asked of them; the settings only want to be there.
    places = {"SECRET_KEY": "none", "DATABASE_URL": "postgres:///none", "REDIS_URL": "redis://none"}
    for name, value in places.items():
        os.environ.pop(f"TIDEMARK_{name}_FILE", None)
        os.environ[f"TIDEMARK_{name}"] = value
    os.environ |= {"TIDEMARK_ENV_FILE": "/dev/null", "DJANGO_SETTINGS_MODULE": "server.settings"}
    import django  # noqa: PLC0415 (so does this)

    django.setup()
    CONTRACT.write_text(as_text(described()), encoding="utf-8")
    print(f"{CONTRACT} written: read what the diff takes away")


if __name__ == "__main__":
    main()
