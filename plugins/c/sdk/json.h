//! JSON for plugins: token by token or by the names of fields, without building values.
//!
//! A plugin calls it for payloads and settings. It is strict (RFC 8259, UTF-8 included), hands out
//! the text's own bytes, so that numbers keep their digits, and calls nothing recursively: nothing
//! is nested too deeply for the stack.
#ifndef HAULIER_JSON_H
#define HAULIER_JSON_H

#include "haulier.h"

/// What a walk comes by.
enum json_token {
    /// The end of the text.
    JSON_END,
    /// The start of an object or array.
    JSON_OPEN,
    /// Its end.
    JSON_CLOSE,
    /// The name of a field, quotes included; its value is next.
    JSON_KEY,
    /// Any other value.
    JSON_SCALAR,
    /// The text is not JSON. The walk is over.
    JSON_WRONG,
};

/// A walk through a JSON text.
typedef struct {
    const char *at;
    const char *end;
    /// One bit for each that is open: whether it is an object.
    uint8_t *objects;
    size_t depth;
    uint8_t expect;
    /// The bytes of the last token, as they stand in the text.
    haulier_text token;
} json_walk;

/// The start of a walk.
json_walk json_start(haulier_text text);

/// The next token.
enum json_token json_next(json_walk *walk);

/// The next value as a whole, after a key or in an array; its bytes are in `token`. JSON_CLOSE is
/// the end of an array.
enum json_token json_value(json_walk *walk);

/// Whether the text is JSON.
bool json_valid(haulier_text text);

/// The bytes of a text or number in JSON as what they stand for: a text without quotes and escapes,
/// a number as it is written. Nothing for any other value, and for half a surrogate pair.
haulier_option json_plain(haulier_text value);

/// A field to look for, and the bytes of its value. Of several the last counts; null is nothing.
typedef struct {
    haulier_text name;
    haulier_option value;
} json_field;

/// What json_fields found the text to be.
enum json_found { JSON_OBJECT, JSON_NO_OBJECT, JSON_INVALID };

/// Fills in the fields of an object. The whole text is read in any case.
enum json_found json_fields(haulier_text text, json_field *fields, size_t count);

/// Fills in the settings of a plugin; an error names one that is not among the fields.
haulier_text json_settings(haulier_text settings, json_field *fields, size_t count);

/// Adds a text as JSON, in quotes.
void json_append(haulier_buffer *buffer, haulier_text text);

#endif
