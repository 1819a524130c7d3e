//! The component's exports and imports, its memory, and texts. The host calls the exports; a plugin
//! calls what `haulier.h` declares.
//!
//! Memory is a heap that only grows while a call lasts, and is taken back as a whole when the host
//! has read the answer. Nothing is ever freed piece by piece.
#include "haulier.h"

#define INTERFACE "haulier:relay/transformer@0.1.0#"
#define EXPORT(name) __attribute__((export_name(name)))
#define IMPORT(name) __attribute__((import_module("haulier:relay/host@0.1.0"), import_name(name)))

// The layout is the contract.
_Static_assert(sizeof(haulier_event) == 60, "event");
_Static_assert(sizeof(haulier_header) == 20, "header");
_Static_assert(sizeof(haulier_manifest) == 28, "manifest");
_Static_assert(sizeof(haulier_delivery) == 72, "delivery");
_Static_assert(sizeof(haulier_verdict) == 88, "verdict");
_Static_assert(offsetof(haulier_delivery, partition) == 48, "partition");
_Static_assert(offsetof(haulier_delivery, timestamp) == 56, "timestamp");

IMPORT("log") void host_log(int32_t level, const char *line, size_t length);
IMPORT("enter") void host_enter(uint32_t index);

// Memory.

static const size_t PAGE = 65536;

/// Where the linker's data end.
extern char __heap_base;
/// Where the heap starts again after a call.
static char *heap_start = &__heap_base;
/// Where the next piece goes.
static char *heap_next = &__heap_base;

static char *aligned(char *at) {
    return (char *)(((uintptr_t)at + 7) & ~(uintptr_t)7);
}

static void reach(uintptr_t end) {
    size_t have = __builtin_wasm_memory_size(0) * PAGE;
    // Addresses have 32 bits: an end before the heap has wrapped around.
    if (end < (uintptr_t)heap_next) {
        __builtin_trap();
    }
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + PAGE - 1) / PAGE) == (size_t)-1) {
        __builtin_trap();
    }
}

void *haulier_allocate(size_t size) {
    char *piece = aligned(heap_next);
    reach((uintptr_t)piece + size);
    heap_next = piece + size;
    return piece;
}

/// The host asks for memory with it, before a call, for what it hands over.
EXPORT("cabi_realloc")
void *cabi_realloc(char *old, size_t old_size, size_t align, size_t size) {
    (void)align; // Nothing in the contract has more than 8.
    if (old != NULL && old + old_size == heap_next) {
        reach((uintptr_t)old + size);
        heap_next = old + size;
        return old;
    }
    char *piece = haulier_allocate(size);
    if (old != NULL) {
        __builtin_memcpy(piece, old, old_size < size ? old_size : size);
    }
    return piece;
}

// The compiler calls them for large copies; with the target's bulk memory they are one instruction.

void *memcpy(void *to, const void *from, size_t size) {
    return __builtin_memcpy(to, from, size);
}

void *memmove(void *to, const void *from, size_t size) {
    return __builtin_memmove(to, from, size);
}

void *memset(void *at, int byte, size_t size) {
    return __builtin_memset(at, byte, size);
}

// Exports. What they return is read by the host, which then calls the function of the same name
// with `cabi_post_` before it.

EXPORT(INTERFACE "describe")
const haulier_manifest *export_describe(void) {
    static haulier_manifest manifest;
    manifest = plugin_manifest();
    return &manifest;
}

EXPORT("cabi_post_" INTERFACE "describe")
void export_described(const haulier_manifest *manifest) {
    (void)manifest;
    heap_next = heap_start;
}

EXPORT(INTERFACE "configure")
const haulier_option *export_configure(const char *settings, size_t length) {
    static haulier_option error;
    error.text = plugin_configure((haulier_text){settings, length});
    error.some = error.text.data != NULL;
    // The settings stay, and what was made of them.
    heap_start = heap_next;
    return &error;
}

EXPORT("cabi_post_" INTERFACE "configure")
void export_configured(const haulier_option *error) {
    (void)error;
}

struct verdicts {
    const haulier_verdict *verdicts;
    size_t count;
};

EXPORT(INTERFACE "transform")
const struct verdicts *export_transform(const haulier_event *events, size_t count) {
    static struct verdicts answer;
    haulier_verdict *verdicts = haulier_allocate(count * sizeof *verdicts);
    for (size_t index = 0; index < count; index++) {
        // Should this event make the plugin trap, the host knows which one it was.
        host_enter(index);
        verdicts[index] = plugin_transform(&events[index]);
    }
    answer = (struct verdicts){verdicts, count};
    return &answer;
}

EXPORT("cabi_post_" INTERFACE "transform")
void export_transformed(const struct verdicts *answer) {
    (void)answer;
    heap_next = heap_start;
}

void haulier_log(enum haulier_level level, haulier_text line) {
    host_log(level, line.data, line.length);
}

// Verdicts.

haulier_verdict haulier_deliver(haulier_delivery delivery) {
    return (haulier_verdict){.outcome = {.kind = HAULIER_DELIVER, .deliver = delivery}};
}

haulier_verdict haulier_fan_out(const haulier_delivery *deliveries, size_t count) {
    return (haulier_verdict){.outcome = {.kind = HAULIER_FAN_OUT, .fan_out = {deliveries, count}}};
}

haulier_verdict haulier_drop(haulier_text text) {
    return (haulier_verdict){.outcome = {.kind = HAULIER_DROP, .drop = text}};
}

haulier_verdict haulier_reject(haulier_text text) {
    return (haulier_verdict){.failed = true, .failure = {HAULIER_REJECT, text}};
}

haulier_verdict haulier_retry(haulier_text text) {
    return (haulier_verdict){.failed = true, .failure = {HAULIER_RETRY, text}};
}

haulier_option haulier_some(haulier_text text) {
    return (haulier_option){true, text};
}

haulier_text haulier_or_empty(haulier_option option) {
    // The host leaves the text of nothing as it found the memory.
    return option.some ? option.text : (haulier_text){0};
}

haulier_record_key haulier_key(haulier_text bytes) {
    return (haulier_record_key){HAULIER_KEY_BYTES, bytes};
}

haulier_record_payload haulier_payload(haulier_text bytes) {
    return (haulier_record_payload){HAULIER_BYTES, bytes};
}

haulier_option haulier_find_attribute(const haulier_event *event, haulier_text name) {
    for (size_t index = 0; index < event->attribute_count; index++) {
        if (haulier_equal(event->attributes[index].name, name)) {
            return haulier_some(event->attributes[index].value);
        }
    }
    return (haulier_option){0};
}

// Texts.

bool haulier_equal(haulier_text a, haulier_text b) {
    if (a.length != b.length) {
        return false;
    }
    for (size_t index = 0; index < a.length; index++) {
        if (a.data[index] != b.data[index]) {
            return false;
        }
    }
    return true;
}

haulier_text haulier_join(const haulier_text *parts, size_t count) {
    haulier_buffer buffer = {0};
    for (size_t index = 0; index < count; index++) {
        haulier_append(&buffer, parts[index]);
    }
    return haulier_buffer_text(&buffer);
}

haulier_text haulier_digits(uint64_t number) {
    const size_t most = 20;
    char *digits = haulier_allocate(most);
    size_t first = most;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return (haulier_text){digits + first, most - first};
}

void haulier_reserve(haulier_buffer *buffer, size_t more) {
    size_t needed = buffer->length + more;
    if (needed <= buffer->capacity) {
        return;
    }
    size_t doubled = buffer->capacity * 2;
    size_t capacity = needed > doubled ? needed : doubled;
    buffer->data = cabi_realloc(buffer->data, buffer->capacity, 1, capacity);
    buffer->capacity = capacity;
}

void haulier_append(haulier_buffer *buffer, haulier_text text) {
    haulier_reserve(buffer, text.length);
    __builtin_memcpy(buffer->data + buffer->length, text.data, text.length);
    buffer->length += text.length;
}

haulier_text haulier_buffer_text(const haulier_buffer *buffer) {
    return (haulier_text){buffer->data, buffer->length};
}
