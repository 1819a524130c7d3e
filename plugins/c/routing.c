//! Sends orders to a topic per event type, keyed by customer; test orders are dropped.
//!
//! The host calls it for `order.*`. The payload is never copied. What it does is what
//! `jobs/routing.jsonl` says, as in every other language.
#include "sdk/haulier.h"
#include "sdk/json.h"

/// What every topic starts with, before a dot.
static haulier_text topic_prefix = TEXT("shop");

static const haulier_text event_types[] = {TEXT("order.*")};

haulier_manifest plugin_manifest(void) {
    return (haulier_manifest){
        .name = TEXT("routing-c"),
        .version = TEXT("0.1.0"),
        .event_types = event_types,
        .event_type_count = 1,
        .needs = HAULIER_PAYLOAD,
    };
}

haulier_text plugin_configure(haulier_text settings) {
    json_field field = {TEXT("topic_prefix")};
    haulier_text error = json_settings(settings, &field, 1);
    if (error.data != NULL || !field.value.some) {
        return error;
    }
    haulier_option plain = json_plain(field.value.text);
    if (!plain.some || *field.value.text.data != '"') {
        return TEXT("settings: topic_prefix: expected a text");
    }
    topic_prefix = plain.text;
    return HAULIER_OK;
}

haulier_verdict plugin_transform(const haulier_event *event) {
    json_field order[] = {{TEXT("customer")}, {TEXT("test")}};
    // No payload is an empty text, which is not JSON.
    if (json_fields(haulier_or_empty(event->payload), order, 2) == JSON_INVALID) {
        return haulier_reject(TEXT("payload is not JSON"));
    }
    if (order[1].value.some && haulier_equal(order[1].value.text, TEXT("true"))) {
        return haulier_drop(TEXT("test order"));
    }
    json_field customer = {TEXT("id")};
    json_fields(order[0].value.text, &customer, 1);
    haulier_option id = json_plain(customer.value.text);
    if (!id.some) {
        return haulier_reject(TEXT("payload has no customer.id"));
    }
    haulier_text topic[] = {topic_prefix, TEXT("."), event->event_type};
    return haulier_deliver((haulier_delivery){
        .topic = haulier_some(haulier_join(topic, 3)),
        .key = haulier_key(id.text),
    });
}
