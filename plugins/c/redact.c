//! Hides personal fields of customer events: their values become `"***"`, at any depth.
//!
//! The host calls it for `customer.*`. All other bytes of the payload stay as they are, and a
//! payload without such fields is not copied. What it does is what `jobs/redact.jsonl` says, as in
//! every other language.
#include "sdk/haulier.h"
#include "sdk/json.h"

static const haulier_text HIDDEN = TEXT("\"***\"");
static const haulier_text event_types[] = {TEXT("customer.*")};

/// The names of the fields whose values are hidden; case matters.
static const haulier_text usual_fields[] = {
    TEXT("name"), TEXT("email"), TEXT("phone"), TEXT("iban"),
};
static const haulier_text *fields = usual_fields;
static size_t field_count = sizeof usual_fields / sizeof *usual_fields;

haulier_manifest plugin_manifest(void) {
    return (haulier_manifest){
        .name = TEXT("redact-c"),
        .version = TEXT("0.1.0"),
        .event_types = event_types,
        .event_type_count = 1,
        .needs = HAULIER_PAYLOAD,
    };
}

haulier_text plugin_configure(haulier_text settings) {
    json_field setting = {TEXT("fields")};
    haulier_text error = json_settings(settings, &setting, 1);
    if (error.data != NULL || !setting.value.some) {
        return error;
    }
    error = TEXT("settings: fields: expected a list of texts");
    haulier_text list = setting.value.text;
    json_walk walk = json_start(list);
    if (json_next(&walk) != JSON_OPEN || *list.data != '[') {
        return error;
    }
    // No list has more entries than bytes.
    haulier_text *names = haulier_allocate(list.length * sizeof *names);
    field_count = 0;
    while (json_value(&walk) != JSON_CLOSE) {
        haulier_option name = json_plain(walk.token);
        if (!name.some || *walk.token.data != '"') {
            return error;
        }
        names[field_count++] = name.text;
    }
    fields = names;
    return HAULIER_OK;
}

/// Whether this is the name of a field to hide.
static bool hides(haulier_option name) {
    for (size_t index = 0; index < field_count && name.some; index++) {
        if (haulier_equal(fields[index], name.text)) {
            return true;
        }
    }
    return false;
}

haulier_verdict plugin_transform(const haulier_event *event) {
    if (!event->payload.some) {
        return haulier_deliver((haulier_delivery){0});
    }
    haulier_text payload = event->payload.text;
    haulier_buffer changed = {0};
    const char *copied = payload.data;
    json_walk walk = json_start(payload);
    enum json_token token;
    while ((token = json_next(&walk)) != JSON_END) {
        if (token == JSON_KEY && hides(json_plain(walk.token))) {
            token = json_value(&walk);
            haulier_text value = walk.token;
            // That there is nothing may be known.
            if (token != JSON_WRONG && !haulier_equal(value, TEXT("null"))
                && !haulier_equal(value, HIDDEN)) {
                haulier_reserve(&changed, payload.length);
                haulier_append(&changed, (haulier_text){copied, (size_t)(value.data - copied)});
                haulier_append(&changed, HIDDEN);
                copied = value.data + value.length;
            }
        }
        if (token == JSON_WRONG) {
            return haulier_reject(TEXT("payload is not JSON"));
        }
    }
    if (changed.data == NULL) {
        return haulier_deliver((haulier_delivery){0});
    }
    const char *end = payload.data + payload.length;
    haulier_append(&changed, (haulier_text){copied, (size_t)(end - copied)});
    haulier_record_payload redacted = haulier_payload(haulier_buffer_text(&changed));
    return haulier_deliver((haulier_delivery){.payload = redacted});
}
