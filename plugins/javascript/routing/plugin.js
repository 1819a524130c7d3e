// Sends orders to topics by their type, keyed by customer. An example plugin for Haulier, and the
// smallest of the four; the same job is written in every language that plugins are written in, and
// plugins/jobs/routing.jsonl says what it does. It never changes a payload.

import { deliver, drop, json, plugin, reject } from "../sdk/haulier.js";

export const transformer = plugin({
  name: "routing-js",
  version: "0.1.0",
  eventTypes: ["order.*"],
  needs: ["payload"],
  settings: { topic_prefix: "shop" },

  event(event, settings) {
    const order = json(event);
    if (order.get("test")?.value === true) return drop("test order");
    // A number is a customer's id as well; `text` keeps all of its digits.
    const key = order.text("customer", "id");
    if (key === undefined) return reject("payload has no customer.id");
    return deliver({ topic: `${settings.topic_prefix}.${event.eventType}`, key });
  },
});
