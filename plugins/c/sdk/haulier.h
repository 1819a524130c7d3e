//! What a Haulier plugin in C is written with: define the three functions `plugin_*` below.
//!
//! The types are laid out as the component model's canonical ABI lays out the contract
//! (`relay.wit`), so nothing is converted or copied between the host and a plugin. All pointers are
//! into the component's own memory. There is no libc, no I/O and no clock; `haulier.c` never keeps
//! anything between two batches but what `plugin_configure` made. Limits named here are the
//! defaults.
#ifndef HAULIER_H
#define HAULIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// A piece of memory: UTF-8 where the contract says text, else any bytes. Not terminated by zero.
typedef struct {
    const char *data;
    size_t length;
} haulier_text;

/// A literal as text: `TEXT("orders")`.
#define TEXT(literal) ((haulier_text){("" literal), sizeof(literal) - 1})

/// A text or nothing. All zero is nothing; the text of nothing may be anything: see
/// haulier_or_empty.
typedef struct {
    bool some;
    haulier_text text;
} haulier_option;

/// A header; nothing as its value is NULL, which is not the same as empty.
typedef struct {
    haulier_text name;
    haulier_option value;
} haulier_header;

/// A fact about a row, such as `created-at-ms`. `relay.wit` lists them.
typedef struct {
    haulier_text name;
    haulier_text value;
} haulier_attribute;

/// One row of the outbox table. It is gone when the batch is answered.
typedef struct {
    /// The row's id, in decimal digits.
    haulier_text id;
    /// The kind of business object the event is about, such as `order`.
    haulier_text aggregate_type;
    /// Which object of that kind; empty if the row has none.
    haulier_text aggregate_id;
    /// What happened, such as `order.created`.
    haulier_text event_type;
    /// The row's headers, in order; names may repeat. None unless the manifest needs them.
    const haulier_header *headers;
    size_t header_count;
    /// The payload. Nothing is SQL NULL, or that the manifest does not need it.
    haulier_option payload;
    /// Facts in no order. None unless the manifest needs them.
    const haulier_attribute *attributes;
    size_t attribute_count;
} haulier_event;

/// What the manifest needs: parts of an event that cost time to hand over.
enum { HAULIER_PAYLOAD = 1, HAULIER_HEADERS = 2, HAULIER_ATTRIBUTES = 4 };

/// Who the plugin is and what it reads.
typedef struct {
    /// 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `-`, `_` and `.`, starting with a letter or a
    /// digit.
    haulier_text name;
    /// 1 to 64 printable characters.
    haulier_text version;
    /// Event types handled when no route names a plugin: full names, or the start of one followed
    /// by `*`. At most 1,000 of at most 255 bytes, none twice.
    const haulier_text *event_types;
    size_t event_type_count;
    /// `HAULIER_PAYLOAD | …`; what is not named arrives empty.
    uint8_t needs;
} haulier_manifest;

/// The key of the record that is published.
typedef struct {
    /// All zero is what route and row say; no key at all; these bytes (empty is a key too).
    enum { HAULIER_KEY_DEFAULT, HAULIER_KEY_NULL, HAULIER_KEY_BYTES } __attribute__((packed)) kind;
    haulier_text bytes;
} haulier_record_key;

/// The payload of the record that is published.
typedef struct {
    /// All zero is the row's own, which is then not copied; NULL; these bytes.
    enum { HAULIER_UNCHANGED, HAULIER_TOMBSTONE, HAULIER_BYTES } __attribute__((packed)) kind;
    haulier_text bytes;
} haulier_record_payload;

/// One record to publish. All zero is all as route and row say, so name what differs only.
typedef struct {
    /// Must not be empty if there is one.
    haulier_option topic;
    haulier_record_key key;
    haulier_record_payload payload;
    /// Headers in place of the row's own; some but none removes them.
    struct {
        bool some;
        const haulier_header *headers;
        size_t count;
    } headers;
    /// 0 or more.
    struct {
        bool some;
        int32_t number;
    } partition;
    /// Milliseconds since 1970.
    struct {
        bool some;
        int64_t ms;
    } timestamp;
} haulier_delivery;

/// The answer for one event. Made by the five functions below only.
typedef struct {
    bool failed;
    union {
        struct {
            enum { HAULIER_DELIVER, HAULIER_FAN_OUT, HAULIER_DROP } __attribute__((packed)) kind;
            union {
                haulier_delivery deliver;
                struct {
                    const haulier_delivery *deliveries;
                    size_t count;
                } fan_out;
                haulier_text drop;
            };
        } outcome;
        struct {
            enum { HAULIER_REJECT, HAULIER_RETRY } __attribute__((packed)) kind;
            haulier_text text;
        } failure;
    };
} haulier_verdict;

/// The plugin's part: who it is. Called once when the file is loaded, before there are settings.
haulier_manifest plugin_manifest(void);

/// The plugin's part: takes the settings, a JSON object; called once per instance. Returns what is
/// wrong with them, naming the setting, or `HAULIER_OK`. What it allocates is kept.
haulier_text plugin_configure(haulier_text settings);

/// The plugin's part: decides one event. Depend on the event and the settings only: the same event
/// may come again and must get the same answer. What it allocates is gone after the batch.
haulier_verdict plugin_transform(const haulier_event *event);

/// Nothing is wrong.
#define HAULIER_OK ((haulier_text){0})

/// Publish one record.
haulier_verdict haulier_deliver(haulier_delivery delivery);
/// Publish several, in this order; at most 100. If one fails the event is retried whole.
haulier_verdict haulier_fan_out(const haulier_delivery *deliveries, size_t count);
/// Publish nothing, on purpose; the text says why.
haulier_verdict haulier_drop(haulier_text text);
/// The event is wrong and will stay wrong; the text says what was expected and what was found. It
/// is cut at 4 KiB.
haulier_verdict haulier_reject(haulier_text text);
/// The event may work later though nothing about it changes.
haulier_verdict haulier_retry(haulier_text text);

/// Some text.
haulier_option haulier_some(haulier_text text);
/// The text, or an empty one if there is none.
haulier_text haulier_or_empty(haulier_option option);
/// These bytes as a record key.
haulier_record_key haulier_key(haulier_text bytes);
/// These bytes as a payload. Do not give the event's own: leave it unchanged.
haulier_record_payload haulier_payload(haulier_text bytes);
/// The attribute of that name, or nothing.
haulier_option haulier_find_attribute(const haulier_event *event, haulier_text name);

/// Whether the bytes are the same.
bool haulier_equal(haulier_text a, haulier_text b);
/// The parts, one after the other: `haulier_join((haulier_text[]){a, b}, 2)`.
haulier_text haulier_join(const haulier_text *parts, size_t count);
/// The number in decimal digits.
haulier_text haulier_digits(uint64_t number);

/// Memory, aligned to 8 bytes, not cleared; never NULL, traps if there is none left. It need not be
/// freed: see the functions `plugin_*`.
void *haulier_allocate(size_t size);

/// A text that grows. All zero is empty; growing is cheap while nothing else is allocated.
typedef struct {
    char *data;
    size_t length;
    size_t capacity;
} haulier_buffer;

/// Makes room for that many bytes more.
void haulier_reserve(haulier_buffer *buffer, size_t more);
/// Adds a text at the end.
void haulier_append(haulier_buffer *buffer, haulier_text text);
/// What was added.
haulier_text haulier_buffer_text(const haulier_buffer *buffer);

/// How much a log line matters.
enum haulier_level { HAULIER_DEBUG, HAULIER_INFO, HAULIER_WARN, HAULIER_ERROR };

/// Writes a line to the host's log; it is cut at 1 KiB, and at most 100 lines are kept of a batch.
void haulier_log(enum haulier_level level, haulier_text line);

#endif
