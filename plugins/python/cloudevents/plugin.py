"""Wraps events as CloudEvents 1.0 in the structured JSON form.

An example plugin for Haulier; the same job is written in every language that plugins are written in,
and plugins/jobs/cloudevents.jsonl says what it does. It never looks into a payload further than to
see whether it is JSON, and never changes it.
"""

import base64
from datetime import datetime, timedelta

from sdk.haulier import Plugin, attribute, deliver, parse, quote

EPOCH = datetime(1970, 1, 1)

# Takes the place of the payload's own.
CONTENT_TYPE = ("content-type", "application/cloudevents+json; charset=utf-8")


class Transformer(Plugin):
    name = "cloudevents-py"
    version = "0.1.0"
    # None: a route has to name this plugin, since it suits events of any type.
    event_types = []
    needs = ["payload", "headers", "attributes"]
    settings = {"source": "/haulier"}

    def event(self, event):
        members = [
            '"specversion":"1.0"',
            f'"id":{quote(event.id)}',
            f'"source":{quote(self.settings["source"] + "/" + event.aggregate_type)}',
            f'"type":{quote(event.event_type)}',
        ]
        if event.aggregate_id:
            members.append(f'"subject":{quote(event.aggregate_id)}')
        created = attribute(event, "created-at-ms")
        if created is not None:
            time = EPOCH + timedelta(milliseconds=int(created))
            members.append(f'"time":"{time.isoformat(timespec="milliseconds")}Z"')
        return deliver(
            payload=b"".join([f"{{{','.join(members)}".encode(), *data(event.payload), b"}"]),
            headers=[*(header for header in event.headers if header[0].lower() != "content-type"), CONTENT_TYPE],
        )


def data(payload):
    if payload is None:
        return []
    if parse(payload) is not None:
        return [b',"datacontenttype":"application/json","data":', payload]
    return [b',"datacontenttype":"application/octet-stream","data_base64":"', base64.b64encode(payload), b'"']
