"""Pages about what is watched: the status of the site, one tree, one mail."""

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from server.core import clock
from server.dashboard.selectors import messages, trees
from server.dashboard.selectors import status as site
from server.dashboard.selectors.dispatch import dispatch_status
from server.detection.noise.selectors import open_questions
from server.sources.models import Message

_GONE = 410


@require_safe
def status(request: HttpRequest) -> HttpResponse:
    now = clock.now()
    context = {"now": now, "status": site.status(), "dispatch": dispatch_status(now), "questions": open_questions()}
    return render(request, "dashboard/status.html", context)


@require_safe
def tree(request: HttpRequest, name: str) -> HttpResponse:
    facts = trees.tree_facts(name, request.GET.dict())
    if facts is None:
        raise Http404(f"There is no tree {name}.")
    return render(request, "dashboard/tree.html", {"now": clock.now(), "tree": facts})


@require_safe
def message(request: HttpRequest, message_id: int) -> HttpResponse:
    facts = messages.message_facts(message_id)
    if facts is None:
        raise Http404(f"There is no message {message_id}.")
    return render(request, "dashboard/message.html", {"now": clock.now(), "message": facts})


@require_safe
def message_text(_request: HttpRequest, message_id: int) -> HttpResponse:
    """What was read of a mail, all of it, to save."""
    row = messages.raw_message(message_id)
    if row is None or row.kind == Message.Kind.DELETED:
        raise Http404(f"There is no text of message {message_id}.")
    response = HttpResponse(messages.read_text(row.pk), content_type="text/plain; charset=utf-8")
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Disposition"] = f'attachment; filename="message-{row.pk}-text.txt"'
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


@require_safe
def raw_message(_request: HttpRequest, message_id: int) -> HttpResponse | StreamingHttpResponse:
    """A mail as it arrived, byte for byte. It is text to save: no browser may take it for a page."""
    row = messages.raw_message(message_id)
    if row is None:
        raise Http404(f"There is no message {message_id}.")
    if row.kind == Message.Kind.DELETED:
        return HttpResponse(f"{row.reason}\n", content_type="text/plain; charset=utf-8", status=_GONE)
    response = StreamingHttpResponse(messages.raw_pieces(row.pk), content_type="text/plain")
    response["Content-Length"] = str(row.size)
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Disposition"] = f'attachment; filename="message-{row.pk}.txt"'
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
