"""Makes one record for an invoice and one for each of its lines.

An example plugin for Haulier; the same job is written in every language that plugins are written in,
and plugins/jobs/fan-out.jsonl says what it does. It never calculates with an amount: that is copied
as it was written.
"""

from sdk.haulier import Plugin, Reject, delivery, fan_out, json

# The host takes at most 100 deliveries for an event, and one is the invoice itself.
MAX_LINES = 99


class Transformer(Plugin):
    name = "fan-out-py"
    version = "0.1.0"
    event_types = ["invoice.issued"]
    needs = ["payload"]

    def event(self, event):
        payload = json(event)
        id = payload.text("invoice")
        if id is None:
            raise Reject("payload has no invoice")
        lines = payload.items("lines")
        if lines is None:
            raise Reject("payload has no lines")
        if len(lines) > MAX_LINES:
            raise Reject(f"invoice {id} has {len(lines)} lines; at most {MAX_LINES} are carried")
        invoice = payload.get("invoice").raw
        deliveries = [delivery(topic="invoices")]
        for number, line in enumerate(lines, 1):
            record = line_record(invoice, number, line)
            deliveries.append(delivery(topic="invoice-lines", key=f"{id}/{number}", payload=record))
        return fan_out(deliveries)


def line_record(invoice, number, line):
    def raw(name):
        value = line.get(name)
        if value is None or value.value is None:
            raise Reject(f"line {number} has no {name}")
        return value.raw

    return f'{{"invoice":{invoice},"line":{number},"sku":{raw("sku")},"amount":{raw("amount")}}}'
