"""Label expressions: `zen3&&bench`, `||`, `!`, `()`. A node's name is one of its labels."""

import re
from collections.abc import Collection

_TOKEN = re.compile(r"\s*(&&|\|\||!|\(|\)|\"[^\"]*\"|[^\s&|!()\"]+)")


def matches(expression: str, labels: Collection[str]) -> bool:
    """Whether a node with these labels fits; an expression that cannot be read fits none."""
    tokens = _TOKEN.findall(expression)
    try:
        return _any_of(tokens, labels) and not tokens
    except IndexError:
        return False


def _any_of(tokens: list[str], labels: Collection[str]) -> bool:
    result = _all_of(tokens, labels)
    while tokens and tokens[0] == "||":
        tokens.pop(0)
        # Both sides are always read: the tokens of the right one have to go.
        result = _all_of(tokens, labels) or result
    return result


def _all_of(tokens: list[str], labels: Collection[str]) -> bool:
    result = _one(tokens, labels)
    while tokens and tokens[0] == "&&":
        tokens.pop(0)
        result = _one(tokens, labels) and result
    return result


def _one(tokens: list[str], labels: Collection[str]) -> bool:
    token = tokens.pop(0)
    if token == "!":
        return not _one(tokens, labels)
    if token == "(":
        result = _any_of(tokens, labels)
        tokens.pop(0)
        return result
    return token.strip('"') in labels
