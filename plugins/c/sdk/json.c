//! JSON as `json.h` declares it. Plugins call it; it never allocates for what it reads but a bit
//! per byte, and the texts that have escapes.
#include "json.h"

/// What may come next.
enum { VALUE, FIRST_KEY, FIRST_ELEMENT, NEXT };

json_walk json_start(haulier_text text) {
    return (json_walk){
        .at = text.data,
        .end = text.data + text.length,
        // No text is nested deeper than it is long.
        .objects = haulier_allocate(text.length / 8 + 1),
        .expect = VALUE,
    };
}

static bool take(json_walk *walk, char byte) {
    if (walk->at < walk->end && *walk->at == byte) {
        walk->at++;
        return true;
    }
    return false;
}

static void blanks(json_walk *walk) {
    const char *at = walk->at;
    while (at < walk->end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) {
        at++;
    }
    walk->at = at;
}

static bool in_object(const json_walk *walk) {
    size_t top = walk->depth - 1;
    return walk->objects[top / 8] >> top % 8 & 1;
}

static enum json_token open(json_walk *walk, bool object) {
    uint8_t bit = (uint8_t)(1 << walk->depth % 8);
    uint8_t *byte = &walk->objects[walk->depth / 8];
    *byte = object ? *byte | bit : *byte & ~bit;
    walk->depth++;
    walk->at++;
    walk->expect = object ? FIRST_KEY : FIRST_ELEMENT;
    return JSON_OPEN;
}

static enum json_token close(json_walk *walk) {
    walk->depth--;
    walk->expect = NEXT;
    return JSON_CLOSE;
}

static int hex(char byte) {
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/// The four digits of an escape, or -1.
static int32_t code_unit(const char *at, const char *end) {
    int32_t unit = 0;
    for (int digit = 0; digit < 4; digit++, at++) {
        if (at >= end || hex(*at) < 0) {
            return -1;
        }
        unit = unit << 4 | hex(*at);
    }
    return unit;
}

/// Goes past one character of more than one byte.
static bool multibyte(json_walk *walk) {
    uint8_t first = (uint8_t)*walk->at++;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    uint32_t code = first & (0x3f >> more);
    if (first < 0xc0 || first > 0xf7 || walk->end - walk->at < more) {
        return false;
    }
    for (int byte = 0; byte < more; byte++) {
        uint8_t next = (uint8_t)*walk->at++;
        if ((next & 0xc0) != 0x80) {
            return false;
        }
        code = code << 6 | (next & 0x3f);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    return code >= least[more] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

static bool escape(json_walk *walk) {
    if (walk->at == walk->end) {
        return false;
    }
    switch (*walk->at++) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return true;
    case 'u':
        if (code_unit(walk->at, walk->end) < 0) {
            return false;
        }
        walk->at += 4;
        return true;
    default:
        return false;
    }
}

/// The bytes of a text that stand for themselves.
static const bool plain[256] = {
    [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... 0x7f] = true,
};

static bool string(json_walk *walk) {
    if (!take(walk, '"')) {
        return false;
    }
    for (;;) {
        // Most bytes are plain ones: this loop is what the time goes into.
        const char *at = walk->at;
        while (at < walk->end && plain[(uint8_t)*at]) {
            at++;
        }
        walk->at = at;
        if (at == walk->end) {
            return false;
        }
        uint8_t byte = (uint8_t)*at;
        if (byte >= 0x80) {
            if (!multibyte(walk)) {
                return false;
            }
            continue;
        }
        walk->at++;
        if (byte == '"') {
            return true;
        }
        if (byte != '\\' || !escape(walk)) {
            return false;
        }
    }
}

/// One or more.
static bool digits(json_walk *walk) {
    const char *start = walk->at;
    while (walk->at < walk->end && *walk->at >= '0' && *walk->at <= '9') {
        walk->at++;
    }
    return walk->at > start;
}

static bool number(json_walk *walk) {
    take(walk, '-');
    if (!take(walk, '0') && !digits(walk)) {
        return false;
    }
    if (take(walk, '.') && !digits(walk)) {
        return false;
    }
    if (take(walk, 'e') || take(walk, 'E')) {
        if (!take(walk, '+')) {
            take(walk, '-');
        }
        return digits(walk);
    }
    return true;
}

static bool literal(json_walk *walk, haulier_text word) {
    if ((size_t)(walk->end - walk->at) < word.length) {
        return false;
    }
    bool found = haulier_equal((haulier_text){walk->at, word.length}, word);
    walk->at += word.length;
    return found;
}

static enum json_token value(json_walk *walk) {
    const char *start = walk->at;
    walk->token = (haulier_text){start, 1};
    if (start == walk->end) {
        return JSON_WRONG;
    }
    bool fine;
    switch (*start) {
    case '{': return open(walk, true);
    case '[': return open(walk, false);
    case '"': fine = string(walk); break;
    case 't': fine = literal(walk, TEXT("true")); break;
    case 'f': fine = literal(walk, TEXT("false")); break;
    case 'n': fine = literal(walk, TEXT("null")); break;
    default: fine = number(walk); break;
    }
    walk->expect = NEXT;
    walk->token.length = (size_t)(walk->at - start);
    return fine ? JSON_SCALAR : JSON_WRONG;
}

static enum json_token key(json_walk *walk) {
    const char *start = walk->at;
    bool fine = string(walk);
    walk->token = (haulier_text){start, (size_t)(walk->at - start)};
    blanks(walk);
    walk->expect = VALUE;
    return fine && take(walk, ':') ? JSON_KEY : JSON_WRONG;
}

enum json_token json_next(json_walk *walk) {
    blanks(walk);
    switch (walk->expect) {
    case VALUE:
        return value(walk);
    case FIRST_KEY:
        return take(walk, '}') ? close(walk) : key(walk);
    case FIRST_ELEMENT:
        return take(walk, ']') ? close(walk) : value(walk);
    default:
        break;
    }
    if (walk->depth == 0) {
        return walk->at == walk->end ? JSON_END : JSON_WRONG;
    }
    bool object = in_object(walk);
    if (take(walk, object ? '}' : ']')) {
        return close(walk);
    }
    if (!take(walk, ',')) {
        return JSON_WRONG;
    }
    blanks(walk);
    return object ? key(walk) : value(walk);
}

enum json_token json_value(json_walk *walk) {
    size_t depth = walk->depth;
    enum json_token first = json_next(walk);
    if (first != JSON_OPEN) {
        return first;
    }
    const char *start = walk->token.data;
    while (walk->depth > depth) {
        if (json_next(walk) == JSON_WRONG) {
            return JSON_WRONG;
        }
    }
    walk->token = (haulier_text){start, (size_t)(walk->at - start)};
    return first;
}

bool json_valid(haulier_text text) {
    json_walk walk = json_start(text);
    return json_value(&walk) != JSON_WRONG && json_next(&walk) == JSON_END;
}

/// Adds a character in UTF-8.
static void append_code(haulier_buffer *buffer, uint32_t code) {
    char bytes[4];
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t byte = length; byte-- > 1; code >>= 6) {
        bytes[byte] = (char)(0x80 | (code & 0x3f));
    }
    static const uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    bytes[0] = (char)(marks[length] | code);
    haulier_append(buffer, (haulier_text){bytes, length});
}

/// Adds what the escape at `at` stands for, and says where it ends; NULL for half a surrogate pair.
/// It is known to be well formed.
static const char *append_escape(haulier_buffer *buffer, const char *at, const char *end) {
    static const char names[] = "bfnrt";
    static const char bytes[] = "\b\f\n\r\t";
    char name = at[1];
    if (name != 'u') {
        for (size_t index = 0; index < sizeof names - 1; index++) {
            name = at[1] == names[index] ? bytes[index] : name;
        }
        haulier_append(buffer, (haulier_text){&name, 1});
        return at + 2;
    }
    uint32_t code = (uint32_t)code_unit(at + 2, end);
    at += 6;
    if (code >= 0xd800 && code <= 0xdfff) {
        bool pair = code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u';
        uint32_t low = pair ? (uint32_t)code_unit(at + 2, end) : 0;
        if (low < 0xdc00 || low > 0xdfff) {
            return NULL;
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    }
    append_code(buffer, code);
    return at;
}

haulier_option json_plain(haulier_text value) {
    char first = value.length > 0 ? *value.data : 0;
    if (first == '-' || (first >= '0' && first <= '9')) {
        return haulier_some(value);
    }
    if (first != '"') {
        return (haulier_option){0};
    }
    const char *at = value.data + 1, *end = value.data + value.length - 1, *start = at;
    haulier_buffer buffer = {0};
    for (; at < end; at++) {
        if (*at != '\\') {
            continue;
        }
        haulier_append(&buffer, (haulier_text){start, (size_t)(at - start)});
        start = append_escape(&buffer, at, end);
        if (start == NULL) {
            return (haulier_option){0};
        }
        at = start - 1;
    }
    haulier_text rest = {start, (size_t)(end - start)};
    if (buffer.data == NULL) {
        return haulier_some(rest);
    }
    haulier_append(&buffer, rest);
    return haulier_some(haulier_buffer_text(&buffer));
}

/// Walks the fields of an object. The first whose name is not among the fields goes to `unknown`.
static enum json_found fields_of(haulier_text text, json_field *fields, size_t count,
                                 haulier_option *unknown) {
    json_walk walk = json_start(text);
    if (json_next(&walk) != JSON_OPEN || *walk.token.data != '{') {
        return json_valid(text) ? JSON_NO_OBJECT : JSON_INVALID;
    }
    enum json_token token;
    while ((token = json_next(&walk)) == JSON_KEY) {
        haulier_text key = walk.token;
        haulier_option name = json_plain(key);
        if (json_value(&walk) == JSON_WRONG) {
            return JSON_INVALID;
        }
        bool known = false;
        for (size_t index = 0; index < count && name.some; index++) {
            if (haulier_equal(fields[index].name, name.text)) {
                bool null = haulier_equal(walk.token, TEXT("null"));
                fields[index].value = null ? (haulier_option){0} : haulier_some(walk.token);
                known = true;
            }
        }
        if (!known && !unknown->some) {
            *unknown = haulier_some(name.some ? name.text : key);
        }
    }
    return token == JSON_CLOSE && json_next(&walk) == JSON_END ? JSON_OBJECT : JSON_INVALID;
}

enum json_found json_fields(haulier_text text, json_field *fields, size_t count) {
    haulier_option unknown = {0};
    return fields_of(text, fields, count, &unknown);
}

haulier_text json_settings(haulier_text settings, json_field *fields, size_t count) {
    haulier_option unknown = {0};
    if (fields_of(settings, fields, count, &unknown) != JSON_OBJECT) {
        return TEXT("settings: expected a JSON object");
    }
    if (unknown.some) {
        haulier_text parts[] = {TEXT("settings: unknown field `"), unknown.text, TEXT("`")};
        return haulier_join(parts, 3);
    }
    return HAULIER_OK;
}

void json_append(haulier_buffer *buffer, haulier_text text) {
    static const char hexes[] = "0123456789abcdef";
    static const char names[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't',
    };
    haulier_reserve(buffer, text.length + 2);
    haulier_append(buffer, TEXT("\""));
    size_t start = 0;
    for (size_t at = 0; at < text.length; at++) {
        uint8_t byte = (uint8_t)text.data[at];
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            continue;
        }
        haulier_append(buffer, (haulier_text){text.data + start, at - start});
        start = at + 1;
        char name = byte < 0x20 ? names[byte] : (char)byte;
        char code[6] = {'\\', 'u', '0', '0', hexes[byte >> 4], hexes[byte & 15]};
        code[1] = name != 0 ? name : 'u';
        haulier_append(buffer, (haulier_text){code, name != 0 ? 2 : 6});
    }
    haulier_append(buffer, (haulier_text){text.data + start, text.length - start});
    haulier_append(buffer, TEXT("\""));
}
