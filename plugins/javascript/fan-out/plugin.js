// Makes one record for an invoice and one for each of its lines. An example plugin for Haulier; the
// same job is written in every language that plugins are written in, and plugins/jobs/fan-out.jsonl
// says what it does. It never calculates with an amount: that is copied as it was written.

import { fanOut, json, plugin, reject } from "../sdk/haulier.js";

/** The host takes at most 100 deliveries for an event, and one is the invoice itself. */
const MAX_LINES = 99;

export const transformer = plugin({
  name: "fan-out-js",
  version: "0.1.0",
  eventTypes: ["invoice.issued"],
  needs: ["payload"],

  event(event) {
    const payload = json(event);
    const id = payload.text("invoice");
    if (id === undefined) return reject("payload has no invoice");
    const lines = payload.items("lines");
    if (lines === undefined) return reject("payload has no lines");
    if (lines.length > MAX_LINES) {
      return reject(`invoice ${id} has ${lines.length} lines; at most ${MAX_LINES} are carried`);
    }
    const invoice = payload.get("invoice").raw;
    return fanOut([
      { topic: "invoices" },
      ...lines.map((line, index) => ({
        topic: "invoice-lines",
        key: `${id}/${index + 1}`,
        payload: lineRecord(invoice, index + 1, line),
      })),
    ]);
  },
});

function lineRecord(invoice, number, line) {
  const [sku, amount] = ["sku", "amount"].map((name) => {
    const raw = line.get(name)?.raw ?? "null";
    if (raw === "null") throw reject(`line ${number} has no ${name}`);
    return raw;
  });
  return `{"invoice":${invoice},"line":${number},"sku":${sku},"amount":${amount}}`;
}
