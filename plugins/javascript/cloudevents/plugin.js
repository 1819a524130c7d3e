// Wraps events as CloudEvents 1.0 in the structured JSON form. An example plugin for Haulier; the
// same job is written in every language that plugins are written in, and
// plugins/jobs/cloudevents.jsonl says what it does. It never looks into a payload further than to
// see whether it is JSON, and never changes it.

import { attribute, concat, deliver, parse, plugin, quote } from "../sdk/haulier.js";

export const transformer = plugin({
  name: "cloudevents-js",
  version: "0.1.0",
  // None: a route has to name this plugin, since it suits events of any type.
  eventTypes: [],
  needs: ["payload", "headers", "attributes"],
  settings: { source: "/haulier" },

  event(event, settings) {
    const members = [
      `"specversion":"1.0"`,
      `"id":${quote(event.id)}`,
      `"source":${quote(`${settings.source}/${event.aggregateType}`)}`,
      `"type":${quote(event.eventType)}`,
    ];
    if (event.aggregateId !== "") members.push(`"subject":${quote(event.aggregateId)}`);
    const created = attribute(event, "created-at-ms");
    if (created !== undefined) members.push(`"time":"${new Date(Number(created)).toISOString()}"`);
    return deliver({
      payload: concat(`{${members.join(",")}`, ...data(event.payload), "}"),
      headers: [...event.headers.filter(([name]) => name.toLowerCase() !== "content-type"), CONTENT_TYPE],
    });
  },
});

/** Takes the place of the payload's own. */
const CONTENT_TYPE = ["content-type", "application/cloudevents+json; charset=utf-8"];

function data(payload) {
  if (payload === null) return [];
  if (parse(payload)) return [`,"datacontenttype":"application/json","data":`, payload];
  return [`,"datacontenttype":"application/octet-stream","data_base64":"${payload.toBase64()}"`];
}
