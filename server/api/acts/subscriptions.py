"""What a person is told of: his own subscriptions, listed, made, changed and ended. Nobody reads those of another."""

from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.acts.act import ActIn, Acting, describe_act, filled
from server.api.permissions import person_of
from server.core.models import PersonToken
from server.reports.models import Subscription
from server.reports.subscribers.subscription import (
    change_subscription,
    end_subscription,
    hook_secret,
    renew_secret,
    subscribe,
    wish,
)

_SUBSCRIBE = PersonToken.Scope.SUBSCRIBE
_LONGEST_NAME = 100
# What holds a secret.
_NOT_KEPT = {"Cache-Control": "no-store"}


class SubscriptionChangeIn(ActIn):
    """What is left out is empty, and narrows nothing."""

    tree = serializers.CharField(max_length=_LONGEST_NAME, default="", allow_blank=True)
    uarch = serializers.CharField(max_length=_LONGEST_NAME, default="", allow_blank=True)
    benchmark = serializers.CharField(max_length=_LONGEST_NAME, default="", allow_blank=True)
    claim = serializers.ChoiceField(choices=Subscription.Claim.choices, default="", allow_blank=True)
    path = serializers.CharField(max_length=200, default="", allow_blank=True, help_text="Its beginning, as mm/.")
    pace = serializers.ChoiceField(choices=Subscription.Pace.choices, default=Subscription.Pace.EACH)
    url = serializers.CharField(max_length=500, default="", allow_blank=True, help_text="Of a webhook.")


class SubscriptionIn(SubscriptionChangeIn):
    way = serializers.ChoiceField(choices=Subscription.Way.choices)


class SubscriptionOut(serializers.ModelSerializer[Subscription]):
    tree = serializers.CharField(source="tree.name", default=None, allow_null=True)
    uarch = serializers.CharField(source="uarch.name", default=None, allow_null=True)
    benchmark = serializers.CharField(source="benchmark.name", default=None, allow_null=True)
    wish = serializers.SerializerMethodField(help_text="What it asks for, for people.")

    class Meta:
        model = Subscription
        fields: ClassVar[list[str]] = [
            "id", "wish", "way", "pace", "url", "tree", "uarch", "benchmark", "claim", "path", "created_at", "ended_at",
        ]  # fmt: skip

    @extend_schema_field(serializers.CharField())
    def get_wish(self, row: Subscription) -> str:
        return wish(row)


class SubscriptionMadeOut(SubscriptionOut):
    secret = serializers.CharField(
        allow_null=True, help_text="Of a webhook that this call made: told once. Null of what was there before."
    )

    class Meta(SubscriptionOut.Meta):
        fields: ClassVar[list[str]] = [*SubscriptionOut.Meta.fields, "secret"]


class SecretOut(serializers.Serializer[Any]):
    subscription = serializers.IntegerField()
    secret = serializers.CharField(help_text="Signs the calls from the next one on: told once.")


class _Own(Acting):
    """Reading asks who reads, as acting does."""

    scope: ClassVar[PersonToken.Scope] = _SUBSCRIBE

    def _acts(self) -> bool:
        return bool(self.request is not None and self.request.method in ("GET", "HEAD", "POST"))


class SubscriptionListView(_Own):
    @describe_act("subscription_list", None, {200: SubscriptionOut(many=True)}, _SUBSCRIBE)
    def get(self, request: Request) -> Response:
        own = Subscription.objects.filter(user=person_of(request).user, ended_at=None)
        rows = own.select_related("tree", "uarch", "benchmark").order_by("pk")
        return Response(SubscriptionOut(rows, many=True).data)

    @describe_act("subscription_make", SubscriptionIn, {200: SubscriptionMadeOut, 201: SubscriptionMadeOut}, _SUBSCRIBE)
    def post(self, request: Request) -> Response:
        row, is_new = subscribe(person_of(request).user, filled(SubscriptionIn, request))
        told = is_new and row.way == Subscription.Way.HOOK
        answer = {**SubscriptionOut(row).data, "secret": hook_secret(row) if told else None}
        return Response(answer, status=201 if is_new else 200, headers=_NOT_KEPT if told else None)


class SubscriptionChangeView(_Own):
    @describe_act("subscription_change", SubscriptionChangeIn, {200: SubscriptionOut}, _SUBSCRIBE)
    def post(self, request: Request, pk: int) -> Response:
        given = filled(SubscriptionChangeIn, request)
        return Response(SubscriptionOut(change_subscription(_found(request, pk), given)).data)


class SubscriptionSecretView(_Own):
    @describe_act("subscription_secret", None, {200: SecretOut}, _SUBSCRIBE)
    def post(self, request: Request, pk: int) -> Response:
        return Response({"subscription": pk, "secret": renew_secret(_found(request, pk))}, headers=_NOT_KEPT)


class SubscriptionEndView(_Own):
    @describe_act("subscription_end", None, {200: SubscriptionOut}, _SUBSCRIBE)
    def post(self, request: Request, pk: int) -> Response:
        row = _found(request, pk)
        end_subscription(row)
        row.refresh_from_db(fields=["ended_at"])
        return Response(SubscriptionOut(row).data)


def _found(request: Request, pk: int) -> Subscription:
    rows = Subscription.objects.select_related("user", "tree", "uarch", "benchmark")
    return get_object_or_404(rows, pk=pk, user=person_of(request).user)
