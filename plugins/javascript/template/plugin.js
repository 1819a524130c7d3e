// The plugin {{name}}: which topic an event goes to, and under which key. Haulier calls it for every
// event of the outbox that is routed to it. It never does I/O and keeps nothing between two events.
//
// sdk/haulier.js says what a plugin can return and how to read JSON; wit/relay.wit is the contract.

import { deliver, json, plugin, reject } from "./sdk/haulier.js";

export const transformer = plugin({
  // Routes and the configuration know the plugin by this name.
  name: "{{name}}",
  version: "0.1.0",

  // The event types it handles when no route names it: a full name, or its start and a `*`.
  eventTypes: ["order.*"],

  // What it reads of an event: "payload", "headers", "attributes". What is not named is not handed over.
  needs: ["payload"],

  // What an operator may set under [plugins.{{name}}.settings], with defaults. Other names are refused.
  settings: { key_field: "id" },

  // Decides one event.
  event(event, settings) {
    // `order.created` goes to the topic `order`.
    const topic = event.eventType.split(".")[0];

    // Events with the same key keep their order. `text` takes a string or a number, with all its digits.
    // `json` rejects the event if its payload is not JSON.
    const key = json(event).text(settings.key_field);
    if (key === undefined) return reject(`payload has no ${settings.key_field}`);

    // What is not named here stays as it is: the payload is the row's own, byte for byte.
    return deliver({ topic, key });
  },
});
