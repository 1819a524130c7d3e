// Blanks out personal data wherever it stands in a payload. An example plugin for Haulier; the same
// job is written in every language that plugins are written in, and plugins/jobs/redact.jsonl says
// what it does. It never touches a byte of the payload besides the values it replaces.

import { deliver, json, plugin } from "../sdk/haulier.js";

export const transformer = plugin({
  name: "redact-js",
  version: "0.1.0",
  eventTypes: ["customer.*"],
  needs: ["payload"],
  settings: { fields: ["name", "email", "phone", "iban"] },

  configure(settings) {
    return new Set(settings.fields);
  },

  event(event, fields) {
    if (event.payload === null) return deliver();
    const payload = json(event);
    const personal = payload.named(fields).filter((value) => value.raw !== "null");
    if (personal.length === 0) return deliver();
    return deliver({ payload: payload.replace(personal, '"***"') });
  },
});
