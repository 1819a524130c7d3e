//! Wraps every event as a CloudEvent 1.0 in structured JSON mode.
//!
//! No event type leads to it by itself; routes do. A payload that is JSON is taken over byte for
//! byte as `data`, any other as `data_base64`. What it does is what `jobs/cloudevents.jsonl` says,
//! as in every other language.
#include "sdk/haulier.h"
#include "sdk/json.h"

static const int64_t MS_PER_DAY = 86400000;

/// What every `source` starts with, before a slash and the aggregate type.
static haulier_text source = TEXT("/haulier");

haulier_manifest plugin_manifest(void) {
    return (haulier_manifest){
        .name = TEXT("cloudevents-c"),
        .version = TEXT("0.1.0"),
        .needs = HAULIER_PAYLOAD | HAULIER_HEADERS | HAULIER_ATTRIBUTES,
    };
}

haulier_text plugin_configure(haulier_text settings) {
    json_field field = {TEXT("source")};
    haulier_text error = json_settings(settings, &field, 1);
    if (error.data != NULL || !field.value.some) {
        return error;
    }
    haulier_option plain = json_plain(field.value.text);
    if (!plain.some || *field.value.text.data != '"') {
        return TEXT("settings: source: expected a text");
    }
    source = plain.text;
    return HAULIER_OK;
}

/// How many days there were from 1 January of the year 1 to that of this year.
static int64_t days_before(int64_t year) {
    int64_t years = year - 1;
    return years * 365 + years / 4 - years / 100 + years / 400;
}

/// Writes a number with leading zeros.
static char *put(char *at, int64_t number, int digits) {
    for (int digit = digits; digit-- > 0; number /= 10) {
        at[digit] = (char)('0' + number % 10);
    }
    return at + digits;
}

/// Milliseconds since 1970 as RFC 3339 has them, in UTC. There are none before 1970 or after 9999.
static haulier_text rfc3339(int64_t ms) {
    int64_t days = ms / MS_PER_DAY + days_before(1970);
    // 400 years have 146,097 days; what is left to do is a day too many around the turn of a year.
    int64_t year = days * 400 / 146097 + 1;
    while (days < days_before(year)) {
        year--;
    }
    while (days >= days_before(year + 1)) {
        year++;
    }
    int64_t day = days - days_before(year);
    int64_t february = days_before(year + 1) - days_before(year) - 337;
    int64_t lengths[] = {31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int month = 0;
    while (day >= lengths[month]) {
        day -= lengths[month++];
    }
    ms %= MS_PER_DAY;
    const size_t length = sizeof "0000-00-00T00:00:00.000Z" - 1;
    char *text = haulier_allocate(length);
    const struct { int64_t number; int digits; char after; } parts[] = {
        {year, 4, '-'}, {month + 1, 2, '-'}, {day + 1, 2, 'T'}, {ms / 3600000, 2, ':'},
        {ms / 60000 % 60, 2, ':'}, {ms / 1000 % 60, 2, '.'}, {ms % 1000, 3, 'Z'},
    };
    char *at = text;
    for (size_t index = 0; index < sizeof parts / sizeof *parts; index++) {
        at = put(at, parts[index].number, parts[index].digits);
        *at++ = parts[index].after;
    }
    return (haulier_text){text, length};
}

/// Reads decimal digits; -1 if there are none, or anything else, or more than the year 9999 needs.
static int64_t milliseconds(haulier_option text) {
    const int64_t most = 253402300799999;
    haulier_text digits = haulier_or_empty(text);
    int64_t number = digits.length > 0 ? 0 : -1;
    for (size_t index = 0; index < digits.length && number >= 0; index++) {
        char byte = digits.data[index];
        number = number * 10 + (byte - '0');
        if (byte < '0' || byte > '9' || number > most) {
            return -1;
        }
    }
    return number;
}

static void append_base64(haulier_buffer *buffer, haulier_text bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    haulier_reserve(buffer, bytes.length / 3 * 4 + 4);
    for (size_t at = 0; at < bytes.length; at += 3) {
        size_t left = bytes.length - at;
        uint32_t bits = 0;
        for (size_t byte = 0; byte < 3; byte++) {
            bits = bits << 8 | (byte < left ? (uint8_t)bytes.data[at + byte] : 0);
        }
        char group[4];
        for (size_t digit = 0; digit < 4; digit++) {
            // A group of n bytes has n + 1 digits.
            group[digit] = digit > left ? '=' : digits[bits >> (18 - 6 * digit) & 63];
        }
        haulier_append(buffer, (haulier_text){group, 4});
    }
}

static void append_field(haulier_buffer *buffer, haulier_text start, haulier_text value) {
    haulier_append(buffer, start);
    json_append(buffer, value);
}

static haulier_text wrapped(const haulier_event *event) {
    haulier_text sources[] = {source, TEXT("/"), event->aggregate_type};
    haulier_text from = haulier_join(sources, 3);
    int64_t created = milliseconds(haulier_find_attribute(event, TEXT("created-at-ms")));
    haulier_text time = created < 0 ? TEXT("") : rfc3339(created);
    haulier_text payload = haulier_or_empty(event->payload);
    bool json = event->payload.some && json_valid(payload);

    haulier_buffer out = {0};
    // The rest is short; base64 makes four of three.
    haulier_reserve(&out, 512 + payload.length / 3 * 4);
    append_field(&out, TEXT("{\"specversion\":"), TEXT("1.0"));
    append_field(&out, TEXT(",\"id\":"), event->id);
    append_field(&out, TEXT(",\"source\":"), from);
    append_field(&out, TEXT(",\"type\":"), event->event_type);
    if (event->aggregate_id.length > 0) {
        append_field(&out, TEXT(",\"subject\":"), event->aggregate_id);
    }
    if (time.length > 0) {
        append_field(&out, TEXT(",\"time\":"), time);
    }
    if (json) {
        append_field(&out, TEXT(",\"datacontenttype\":"), TEXT("application/json"));
        haulier_append(&out, TEXT(",\"data\":"));
        haulier_append(&out, payload);
    } else if (event->payload.some) {
        append_field(&out, TEXT(",\"datacontenttype\":"), TEXT("application/octet-stream"));
        haulier_append(&out, TEXT(",\"data_base64\":\""));
        append_base64(&out, payload);
        haulier_append(&out, TEXT("\""));
    }
    haulier_append(&out, TEXT("}"));
    return haulier_buffer_text(&out);
}

/// Whether it is `content-type` in any case.
static bool is_content_type(haulier_text name) {
    static const haulier_text small = TEXT("content-type");
    for (size_t index = 0; index < name.length && index < small.length; index++) {
        char byte = name.data[index];
        byte |= byte >= 'A' && byte <= 'Z' ? 0x20 : 0;
        if (byte != small.data[index]) {
            return false;
        }
    }
    return name.length == small.length;
}

haulier_verdict plugin_transform(const haulier_event *event) {
    haulier_delivery delivery = {.payload = haulier_payload(wrapped(event))};
    haulier_header *headers = haulier_allocate((event->header_count + 1) * sizeof *headers);
    size_t count = 0;
    for (size_t index = 0; index < event->header_count; index++) {
        // The row's own content type is that of the payload, which is no longer what is sent.
        if (!is_content_type(event->headers[index].name)) {
            headers[count++] = event->headers[index];
        }
    }
    haulier_text type = TEXT("application/cloudevents+json; charset=utf-8");
    headers[count++] = (haulier_header){TEXT("content-type"), haulier_some(type)};
    delivery.headers.some = true;
    delivery.headers.headers = headers;
    delivery.headers.count = count;
    return haulier_deliver(delivery);
}
