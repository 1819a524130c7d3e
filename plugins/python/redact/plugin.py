"""Blanks out personal data wherever it stands in a payload.

An example plugin for Haulier; the same job is written in every language that plugins are written in,
and plugins/jobs/redact.jsonl says what it does. It never touches a byte of the payload besides the
values it replaces.
"""

from sdk.haulier import Plugin, deliver, json


class Transformer(Plugin):
    name = "redact-py"
    version = "0.1.0"
    event_types = ["customer.*"]
    needs = ["payload"]
    settings = {"fields": ["name", "email", "phone", "iban"]}

    def prepare(self):
        self.fields = frozenset(self.settings["fields"])

    def event(self, event):
        if event.payload is None:
            return deliver()
        payload = json(event)
        personal = [value for value in payload.named(self.fields) if value.raw != "null"]
        if not personal:
            return deliver()
        return deliver(payload=payload.replace(personal, '"***"'))
