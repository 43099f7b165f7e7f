"""The OpenAPI description: made once, and how it names what DRF cannot describe by itself."""

from functools import cache
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator


class BearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "server.api.authentication.TokenAuthentication"
    name = "agentToken"

    def get_security_definition(self, _auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "The token of one machine or builder."}


class PersonBearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "server.api.authentication.PersonAuthentication"
    name = "personToken"

    def get_security_definition(self, _auto_schema: Any) -> dict[str, str]:
        said = "The token of a person, with the scope that the operation names."
        return {"type": "http", "scheme": "bearer", "description": said}


class OnceGenerator(SchemaGenerator):
    """The description follows from the code alone, and takes a good part of a second to make."""

    def get_schema(self, request: Any = None, public: bool = False) -> Any:  # noqa: ARG002, FBT001, FBT002 (the library's own)
        return _made(public)


@cache
def _made(public: bool) -> Any:  # noqa: FBT001 (a key of the cache)
    document: Any = SchemaGenerator().get_schema(request=None, public=public)  # type: ignore[no-untyped-call]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    for parameter in (one for operation in operations for one in operation.get("parameters", ())):
        shape = parameter["schema"].get("items", parameter["schema"])
        if parameter["in"] == "query" and shape.get("type") == "string" and shape.keys().isdisjoint({"enum", "format"}):
            # One without a value is refused.
            shape.setdefault("minLength", 1)
    return document
