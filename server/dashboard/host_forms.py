"""What people send when they decide something about a machine or a builder."""

from django import forms

from server.dashboard.selectors.host_actions import Action


class ActionForm(forms.Form):
    action = forms.ChoiceField(
        choices=[(action.value, action.value) for action in Action], error_messages={"required": "Say what to do."}
    )
    reason = forms.CharField(max_length=500, strip=True, error_messages={"required": "Say why."})
