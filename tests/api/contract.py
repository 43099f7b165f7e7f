"""Two descriptions of the API side by side: what the newer one takes away from those who use the older one."""

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
_METHODS = ("get", "post", "put", "patch", "delete")


def breaks(old: Document, new: Document) -> list[str]:
    """A sentence for each thing that a program written for `old` may rely on and that `new` does not keep."""
    return sorted(set(_Pair(old, new).breaks()))


class _Pair:
    def __init__(self, old: Document, new: Document) -> None:
        self._old, self._new = old, new

    def breaks(self) -> Iterator[str]:
        for path, operations in self._old["paths"].items():
            if path not in self._new["paths"]:
                yield f"{path} is gone"
                continue
            for method in _METHODS:
                before, now = operations.get(method), self._new["paths"][path].get(method)
                if before and not now:
                    yield f"{method.upper()} {path} is gone"
                elif before and now:
                    yield from self._operation(f"{method.upper()} {path}", before, now)

    def _operation(self, where: str, old: Document, new: Document) -> Iterator[str]:
        if old.get("operationId") != new.get("operationId"):
            yield f"{where}: its name {old.get('operationId')} is gone"
        yield from self._parameters(where, old, new)
        before, now = _bodies(old), _bodies(new)
        if now and not before and new["requestBody"].get("required"):
            yield f"{where}: a body is required now"
        for kind, schema in before.items():
            if kind not in now:
                yield f"{where}: it takes no {kind} any more"
            else:
                yield from self._asked(f"{where}: body", schema, now[kind], set())
        for status, answer in old.get("responses", {}).items():
            if status not in new.get("responses", {}):
                yield f"{where}: the answer {status} is gone"
                continue
            told = new["responses"][status].get("content", {})
            for kind, content in answer.get("content", {}).items():
                if kind not in told:
                    yield f"{where}: {status} is no {kind} any more"
                else:
                    place = f"{where}: {status}"
                    yield from self._told(place, content.get("schema", {}), told[kind].get("schema", {}), set())

    def _parameters(self, where: str, old: Document, new: Document) -> Iterator[str]:
        before, now = _by_name(old), _by_name(new)
        for name, parameter in now.items():
            if name not in before and parameter.get("required"):
                yield f"{where}: the parameter {name[1]} is required now"
        for name, parameter in before.items():
            if name not in now:
                yield f"{where}: the parameter {name[1]} is gone"
                continue
            if now[name].get("required") and not parameter.get("required"):
                yield f"{where}: the parameter {name[1]} is required now"
            place = f"{where}: parameter {name[1]}"
            yield from self._asked(place, parameter.get("schema", {}), now[name].get("schema", {}), set())

    def _asked(self, where: str, old: Document, new: Document, seen: set[Any]) -> Iterator[str]:
        """What is sent to the service: it has to take all that it took."""
        pair = self._opened(old, new, seen)
        if pair is None:
            return
        old, new = pair
        yield from _narrower(where, old, new)
        yield from _tighter(where, old, new)
        properties = new.get("properties", {})
        for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
            yield f"{where}.{name} is required now"
        for name, schema in old.get("properties", {}).items():
            if name not in properties:
                yield f"{where}.{name} is gone"
            else:
                yield from self._asked(f"{where}.{name}", schema, properties[name], seen)
        if "items" in old and "items" in new:
            yield from self._asked(f"{where}[]", old["items"], new["items"], seen)

    def _told(self, where: str, old: Document, new: Document, seen: set[Any]) -> Iterator[str]:
        """What the service answers: all that was there still is, and no value of a kind that nobody expects."""
        pair = self._opened(old, new, seen)
        if pair is None:
            return
        old, new = pair
        if more := _types(new) - _types(old) if _types(old) and _types(new) else set():
            yield f"{where} may be {', '.join(sorted(more))} now"
        if _types(old) and not _types(new):
            yield f"{where} may be anything now"
        # A word that is new has to be expected; one that is gone was promised.
        if gone := set(map(str, old.get("enum", ()))) - set(map(str, new.get("enum", old.get("enum")) or ())):
            yield f"{where} is never {', '.join(sorted(gone))} any more"
        properties = new.get("properties", {})
        for name in sorted(set(old.get("required", ())) & set(properties) - set(new.get("required", ()))):
            yield f"{where}.{name} may be left out now"
        for name, schema in old.get("properties", {}).items():
            if name not in properties:
                yield f"{where}.{name} is gone"
            else:
                yield from self._told(f"{where}.{name}", schema, properties[name], seen)
        if "items" in old and "items" in new:
            yield from self._told(f"{where}[]", old["items"], new["items"], seen)

    def _opened(self, old: Document, new: Document, seen: set[Any]) -> tuple[Document, Document] | None:
        """Both without references; None for two that were compared on the way here."""
        names = (old.get("$ref"), new.get("$ref"))
        if any(names):
            if names in seen:
                return None
            seen.add(names)
        return _flat(self._old, old), _flat(self._new, new)


def _flat(document: Document, schema: Document) -> Document:
    """References followed, and alternatives and parts of one schema put together."""
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = {**found, **{name: value for name, value in schema.items() if name != "$ref"}}
    for name in ("allOf", "oneOf", "anyOf"):
        parts = [_flat(document, part) for part in schema.get(name, ())]
        if parts:
            whole = {key: value for key, value in schema.items() if key != name}
            schema = _joined([whole, *parts])
    return schema


def _joined(parts: list[Document]) -> Document:
    found: Document = {}
    types: list[str] = []
    for part in parts:
        types += sorted(_types(part))
        if "enum" in part:
            found["enum"] = [*found.get("enum", ()), *part["enum"]]
        if "properties" in part:
            found["properties"] = {**found.get("properties", {}), **part["properties"]}
        if "required" in part:
            found["required"] = [*found.get("required", ()), *part["required"]]
        found |= {key: value for key, value in part.items() if key not in {"type", "enum", "properties", "required"}}
    return {**found, **({"type": sorted(set(types))} if types else {})}


def _types(schema: Document) -> set[str]:
    found = schema.get("type", ())
    return {found} if isinstance(found, str) else set(found)


def _narrower(where: str, old: Document, new: Document) -> Iterator[str]:
    if _types(new) and (not _types(old) or _types(old) - _types(new)):
        lost = _types(old) - _types(new) or {"anything"}
        # Every whole number is a number.
        if not (lost == {"integer"} and "number" in _types(new)):
            yield f"{where} may not be {', '.join(sorted(lost))} any more"
    if "enum" in new and "enum" not in old:
        yield f"{where} takes some words alone now"
    if gone := set(map(str, old.get("enum", ()))) - set(map(str, new.get("enum", old.get("enum")) or ())):
        yield f"{where} does not take {', '.join(sorted(gone))} any more"


def _tighter(where: str, old: Document, new: Document) -> Iterator[str]:
    for name, bound in (("maxLength", "longer"), ("maximum", "larger"), ("maxItems", "more")):
        if new.get(name, float("inf")) < old.get(name, float("inf")):
            yield f"{where} may not be {bound} than {new[name]} any more"
    for name in ("minLength", "minimum", "minItems"):
        if new.get(name, float("-inf")) > old.get(name, float("-inf")):
            yield f"{where} has to be at least {new[name]} ({name}) now"
    if new.get("pattern", old.get("pattern")) != old.get("pattern"):
        yield f"{where} has to match {new['pattern']} now"


def _by_name(operation: Document) -> dict[tuple[str, str], Document]:
    return {(one["in"], one["name"]): one for one in operation.get("parameters", ())}


def _bodies(operation: Document) -> dict[str, Document]:
    content = operation.get("requestBody", {}).get("content", {})
    return {kind: one.get("schema", {}) for kind, one in content.items()}
