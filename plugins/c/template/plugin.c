//! {{name}}: sends each order event to a topic named after its type, keyed by customer.
//!
//! Haulier calls `plugin_transform` for every event that is routed here. It never does I/O and
//! keeps nothing between two events but its settings: the same event must get the same answer
//! again.
#include "sdk/haulier.h"
#include "sdk/json.h"

/// Put before every topic name, such as `staging.`; empty by default.
static haulier_text topic_prefix = TEXT("");

/// What is handled when no route names a plugin.
static const haulier_text event_types[] = {TEXT("order.*")};

haulier_manifest plugin_manifest(void) {
    return (haulier_manifest){
        .name = TEXT("{{name}}"),
        .version = TEXT("0.1.0"),
        .event_types = event_types,
        .event_type_count = sizeof event_types / sizeof *event_types,
        // Parts cost time to hand over. There are also HAULIER_HEADERS and HAULIER_ATTRIBUTES.
        .needs = HAULIER_PAYLOAD,
    };
}

/// The settings are `[plugins."{{name}}".settings]` in the configuration, as JSON. One that is not
/// named here is refused when the host starts.
haulier_text plugin_configure(haulier_text settings) {
    json_field prefix = {TEXT("topic_prefix")};
    haulier_text error = json_settings(settings, &prefix, 1);
    if (error.data != NULL || !prefix.value.some) {
        return error;
    }
    haulier_option plain = json_plain(prefix.value.text);
    if (!plain.some) {
        return TEXT("settings: topic_prefix: expected a text");
    }
    topic_prefix = plain.text;
    return HAULIER_OK;
}

static bool is_internal(haulier_text event_type) {
    haulier_text start = TEXT("order.internal.");
    if (event_type.length < start.length) {
        return false;
    }
    return haulier_equal((haulier_text){event_type.data, start.length}, start);
}

haulier_verdict plugin_transform(const haulier_event *event) {
    if (is_internal(event->event_type)) {
        return haulier_drop(TEXT("internal to the order service"));
    }
    json_field customer = {TEXT("customer_id")};
    if (json_fields(haulier_or_empty(event->payload), &customer, 1) != JSON_OBJECT) {
        return haulier_reject(TEXT("expected a JSON object as payload"));
    }
    // A text or a number; either becomes the key as it is written.
    haulier_option key = json_plain(haulier_or_empty(customer.value));
    if (!key.some) {
        return haulier_reject(TEXT("payload has no customer_id"));
    }
    haulier_text topic[] = {topic_prefix, event->event_type};
    // What is not named here stays as it is in the row: the payload is not copied.
    return haulier_deliver((haulier_delivery){
        .topic = haulier_some(haulier_join(topic, 2)),
        .key = haulier_key(key.text),
    });
}
