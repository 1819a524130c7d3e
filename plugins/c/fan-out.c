//! Publishes an invoice as it is, and each of its lines as a record of its own.
//!
//! The host calls it for `invoice.issued`. Texts and amounts are taken over as they are written; no
//! number is parsed. What it does is what `jobs/fan-out.jsonl` says, as in every other language.
#include "sdk/haulier.h"
#include "sdk/json.h"

/// With the invoice itself that is as many records as the host takes for one event.
enum { MOST_LINES = 99 };

static const haulier_text event_types[] = {TEXT("invoice.issued")};

haulier_manifest plugin_manifest(void) {
    return (haulier_manifest){
        .name = TEXT("fan-out-c"),
        .version = TEXT("0.1.0"),
        .event_types = event_types,
        .event_type_count = 1,
        .needs = HAULIER_PAYLOAD,
    };
}

haulier_text plugin_configure(haulier_text settings) {
    return json_settings(settings, NULL, 0);
}

static haulier_verdict too_many(haulier_text id, size_t lines) {
    haulier_text parts[] = {
        TEXT("invoice "), id, TEXT(" has "), haulier_digits(lines), TEXT(" lines; at most "),
        haulier_digits(MOST_LINES), TEXT(" are carried"),
    };
    return haulier_reject(haulier_join(parts, sizeof parts / sizeof *parts));
}

/// The record of one line; what is taken from the line is JSON already.
static haulier_delivery record(haulier_text invoice, haulier_text id, haulier_text number,
                               const json_field *line) {
    haulier_text key[] = {id, TEXT("/"), number};
    haulier_text payload[] = {
        TEXT("{\"invoice\":"), invoice, TEXT(",\"line\":"), number, TEXT(",\"sku\":"),
        line[0].value.text, TEXT(",\"amount\":"), line[1].value.text, TEXT("}"),
    };
    return (haulier_delivery){
        .topic = haulier_some(TEXT("invoice-lines")),
        .key = haulier_key(haulier_join(key, 3)),
        .payload = haulier_payload(haulier_join(payload, sizeof payload / sizeof *payload)),
    };
}

/// How many elements the array has; it is known to be JSON. -1 if it is none.
static int64_t elements(haulier_text array) {
    json_walk walk = json_start(array);
    if (json_next(&walk) != JSON_OPEN || *array.data != '[') {
        return -1;
    }
    int64_t count = 0;
    while (json_value(&walk) != JSON_CLOSE) {
        count++;
    }
    return count;
}

haulier_verdict plugin_transform(const haulier_event *event) {
    json_field invoice[] = {{TEXT("invoice")}, {TEXT("lines")}};
    // No payload is an empty text, which is not JSON.
    if (json_fields(haulier_or_empty(event->payload), invoice, 2) == JSON_INVALID) {
        return haulier_reject(TEXT("payload is not JSON"));
    }
    haulier_option id = json_plain(invoice[0].value.text);
    if (!id.some) {
        return haulier_reject(TEXT("payload has no invoice"));
    }
    haulier_text lines = invoice[1].value.text;
    int64_t count = elements(lines);
    if (count < 0) {
        return haulier_reject(TEXT("payload has no lines"));
    }
    if (count > MOST_LINES) {
        return too_many(id.text, (size_t)count);
    }
    haulier_delivery *deliveries = haulier_allocate((1 + (size_t)count) * sizeof *deliveries);
    deliveries[0] = (haulier_delivery){.topic = haulier_some(TEXT("invoices"))};
    json_walk walk = json_start(lines);
    json_next(&walk);
    for (size_t number = 1; json_value(&walk) != JSON_CLOSE; number++) {
        haulier_text digits = haulier_digits(number);
        json_field line[] = {{TEXT("sku")}, {TEXT("amount")}};
        json_fields(walk.token, line, 2);
        for (size_t index = 0; index < 2; index++) {
            if (!line[index].value.some) {
                haulier_text parts[] = {TEXT("line "), digits, TEXT(" has no "), line[index].name};
                return haulier_reject(haulier_join(parts, 4));
            }
        }
        deliveries[number] = record(invoice[0].value.text, id.text, digits, line);
    }
    return haulier_fan_out(deliveries, 1 + (size_t)count);
}
