"""Sends orders to topics by their type, keyed by customer.

An example plugin for Haulier, and the smallest of the four; the same job is written in every
language that plugins are written in, and plugins/jobs/routing.jsonl says what it does. It never
changes a payload.
"""

from sdk.haulier import Plugin, Reject, deliver, drop, json


class Transformer(Plugin):
    name = "routing-py"
    version = "0.1.0"
    event_types = ["order.*"]
    needs = ["payload"]
    settings = {"topic_prefix": "shop"}

    def event(self, event):
        order = json(event)
        test = order.get("test")
        if test is not None and test.value is True:
            return drop("test order")
        # A number is a customer's id as well; `text` keeps all of its digits.
        key = order.text("customer", "id")
        if key is None:
            raise Reject("payload has no customer.id")
        return deliver(topic=f"{self.settings['topic_prefix']}.{event.event_type}", key=key)
