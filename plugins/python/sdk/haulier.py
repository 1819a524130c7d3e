"""The SDK of Haulier plugins in Python: one file without dependencies, copied into each plugin.

A plugin's module imports it and has one class, which must have the name `Transformer`:

    from sdk.haulier import Plugin, deliver

    class Transformer(Plugin):
        name = "shop"
        version = "0.1.0"
        event_types = ["order.*"]
        needs = ["payload"]
        settings = {"topic": "orders"}

        def event(self, event):
            return deliver(topic=self.settings["topic"])

It takes care of batches and settings, tells the host which event is worked on, and reads JSON
without changing a byte of it. It never does I/O, never keeps anything from one event to the next,
and never hides a bug: an exception that is no verdict is logged and raised on, so that the host
sees a trap and sets that one event aside.

Import at the top of your modules only. The component is a snapshot of the interpreter taken after
the imports; there are no files to import from later.
"""

import json as _json
import re

from componentize_py_types import Err, Ok
from wit_world.exports import transformer
from wit_world.imports import host, types

# ---- The plugin ----------------------------------------------------------------------------------


class Plugin:
    """What a plugin's `Transformer` is derived from. Set what is listed here, and write `event`."""

    # The manifest, as in wit/relay.wit.
    name = ""
    version = ""
    event_types = []
    # Which of "payload", "headers" and "attributes" you read. What is not named is not handed over,
    # which saves time.
    needs = []
    # Every setting with its default. The default's type is the setting's type: a text, a number, a
    # boolean or a list of texts. Unknown names and other types are refused. In `prepare` and in
    # `event`, `self.settings` is what holds.
    settings = {}

    def prepare(self):
        """Called once, when the settings are known. A ValueError refuses them: its text is shown to
        the operator."""

    def event(self, event):
        """Decides one event: returns what `deliver`, `fan_out` or `drop` return, or raises `Reject`
        or `Retry`.

        An event has `id`, `aggregate_type`, `aggregate_id`, `event_type` (strings), `headers` (pairs
        of a name and bytes or None), `payload` (bytes or None) and `attributes` (pairs of strings).
        """
        raise NotImplementedError

    # What follows is what the host calls.

    def describe(self):
        needs = transformer.Needs(0)
        for need in self.needs:
            needs |= transformer.Needs[need.upper()]
        return transformer.Manifest(self.name, self.version, list(self.event_types), needs)

    def configure(self, settings):
        try:
            self.settings = _check_settings(type(self).settings, settings)
            self.prepare()
        except ValueError as error:
            raise Err(str(error)) from error
        # Each call of the host is given a new object, and only this one has the settings.
        global _prepared
        _prepared = self

    def transform(self, events):
        results = []
        for index, event in enumerate(events):
            host.enter(index)
            results.append(_prepared._decide(event))
        return results

    def _decide(self, event):
        try:
            outcome = self.event(event)
            if not isinstance(outcome, _OUTCOMES):
                raise TypeError(f"event() returned {outcome!r}, not deliver(), fan_out() or drop()")
            return Ok(outcome)
        except Reject as verdict:
            return Err(types.Failure_Reject(str(verdict)))
        except Retry as verdict:
            return Err(types.Failure_Retry(str(verdict)))
        except BaseException as error:
            log.error(_story(error))
            raise


# The plugin that `configure` made ready.
_prepared = None


def _story(error):
    """What happened and where. The module traceback would look for source files, which is a trap."""
    lines = [f"{type(error).__name__}: {error}"]
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        lines.append(f"  in {code.co_qualname}, {code.co_filename} line {frame.tb_lineno}")
        frame = frame.tb_next
    return "\n".join(lines)


def _check_settings(defaults, text):
    """The settings in `text`, with defaults for what is absent."""
    given = _json.loads(text)
    if not isinstance(given, dict):
        raise ValueError("settings must be an object")
    for name, value in given.items():
        if name not in defaults:
            known = ", ".join(defaults) or "none"
            raise ValueError(f'unknown setting "{name}"; known: {known}')
        wanted = _kind_of(defaults[name])
        if _kind_of(value) != wanted:
            raise ValueError(f'setting "{name}" must be {wanted}')
    return {**defaults, **given}


def _kind_of(value):
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            strings = all(isinstance(item, str) for item in value)
            return "a list of strings" if strings else "a list"
    return "null" if value is None else "an object"


# ---- Outcomes ------------------------------------------------------------------------------------

_OUTCOMES = (types.Outcome_Deliver, types.Outcome_FanOut, types.Outcome_Drop)


class Reject(Exception):
    """This event will never work; say what was expected and what was found."""


class Retry(Exception):
    """It may work later though nothing about the event changes, which is rare."""


def deliver(**fields):
    """Publishes one record. What is left out is filled in from the route, else from the row; the
    fields are those of `delivery`."""
    return types.Outcome_Deliver(delivery(**fields))


def fan_out(deliveries):
    """Publishes several records, made by `delivery`, in this order."""
    return types.Outcome_FanOut(list(deliveries))


def drop(why):
    """Publishes nothing, on purpose; the text says why."""
    return types.Outcome_Drop(why)


# Left out, where None has a meaning.
_ABSENT = object()


def delivery(*, topic=None, key=_ABSENT, payload=_ABSENT, headers=None, partition=None, timestamp_ms=None):
    """One record.

    `key`: a string or bytes; None is no key at all, on purpose. `payload`: a string or bytes; None is
    a tombstone; left out, it is not copied, so prefer that. `headers`: pairs of a name and a string,
    bytes or None, in place of the row's own.
    """
    if key is _ABSENT:
        key = _DEFAULT
    elif key is None:
        key = types.RecordKey_Null()
    else:
        key = types.RecordKey_Bytes(_bytes(key))
    if payload is _ABSENT:
        payload = _UNCHANGED
    elif payload is None:
        payload = types.RecordPayload_Tombstone()
    else:
        payload = types.RecordPayload_Bytes(_bytes(payload))
    if headers is not None:
        headers = [(name, None if value is None else _bytes(value)) for name, value in headers]
    return types.Delivery(topic, key, payload, headers, partition, timestamp_ms)


_DEFAULT = types.RecordKey_Default()
_UNCHANGED = types.RecordPayload_Unchanged()


def _bytes(value):
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            # Half a surrogate pair, which JSON can hold and UTF-8 cannot.
            return re.sub("[\ud800-\udfff]", "\ufffd", value).encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"expected a string or bytes, found {type(value).__name__}")


# ---- Events and the log --------------------------------------------------------------------------


class log:
    """The host's log, under the plugin's name: `log.info("…")`."""

    @staticmethod
    def debug(message):
        host.log(host.Level.DEBUG, str(message))

    @staticmethod
    def info(message):
        host.log(host.Level.INFO, str(message))

    @staticmethod
    def warn(message):
        host.log(host.Level.WARN, str(message))

    @staticmethod
    def error(message):
        host.log(host.Level.ERROR, str(message))


def attribute(event, name):
    """An attribute of an event, or None. The manifest must need "attributes"."""
    return next((value for found, value in event.attributes if found == name), None)


# ---- JSON ----------------------------------------------------------------------------------------


def json(event):
    """The event's payload as `Json`. Raises a `Reject` if there is none or it is not JSON."""
    found = None if event.payload is None else parse(event.payload)
    if found is None:
        raise Reject("payload is not JSON")
    return found


def parse(data):
    """Bytes as `Json`, or None if they are not JSON in UTF-8, or nested more than 128 deep."""
    try:
        text = data.decode()
        if _too_deep(text):
            return None
        value = _json.loads(text, parse_constant=_refuse, parse_int=_integer)
    except ValueError:
        return None
    start = _SPACE.match(text).end()
    return Json(text, start, len(text.rstrip(" \t\n\r")), value)


def quote(value):
    """A string (or anything else that JSON can hold) as JSON text."""
    return _json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Json:
    """A value in a JSON document, with the text that stands for it.

    A Python float loses digits (1.10, 1e400); `raw` and `text` do not.
    """

    __slots__ = ("_document", "_start", "_end", "_value", "_parent", "_name")

    def __init__(self, document, start, end, value=..., parent=None, name=None):
        self._document = document
        # Where the value is; unknown (None) for one that `get` found, until somebody asks.
        self._start = start
        self._end = end
        self._value = value
        self._parent = parent
        self._name = name

    @property
    def value(self):
        """The value as Python has it: handy for strings, booleans and lengths."""
        if self._value is ...:
            self._value = _json.loads(self.raw, parse_int=_integer)
        return self._value

    @property
    def raw(self):
        """The JSON text of the value, exactly as it stands in the document."""
        self._locate()
        return self._document[self._start : self._end]

    def get(self, *path):
        """The value at a path of names, `get("customer", "id")`, or None."""
        found = self
        for name in path:
            value = found.value
            # With a name given twice the last counts, as for json.loads.
            if not isinstance(value, dict) or name not in value:
                return None
            found = Json(self._document, None, None, value[name], found, name)
        return found

    def text(self, *path):
        """The text at a path: a string's content, or a number's digits as written; else None."""
        found = self.get(*path)
        if found is None or isinstance(found.value, bool):
            return None
        if isinstance(found.value, str):
            return found.value
        return found.raw if isinstance(found.value, (int, float)) else None

    def items(self, *path):
        """The elements of the array at a path, or None if there is no array."""
        found = self.get(*path)
        if found is None or not isinstance(found.value, list):
            return None
        found._locate()
        items = []
        at = found._start
        for value in found.value:
            # Behind the bracket, or behind the comma.
            at = _SEPARATOR.match(self._document, at).end()
            item = Json(self._document, at, _end_of_value(self._document, at), value)
            at = item._end
            items.append(item)
        return items

    def named(self, names):
        """The values of all members with one of these names, at any depth; not those in another."""
        self._locate()
        found = []
        at = self._start
        while member := _NAME.search(self._document, at, self._end):
            name, at = member[1], member.end()
            if name is None:
                # A string that is a value.
                continue
            if _content(name) in names:
                found.append(Json(self._document, at, _end_of_value(self._document, at)))
                at = found[-1]._end
        return found

    def replace(self, values, replacement):
        """The whole document with these values (in their order) replaced by JSON text; all else is
        as it was."""
        parts = []
        at = 0
        for value in values:
            value._locate()
            parts += self._document[at : value._start], replacement
            at = value._end
        return "".join(parts) + self._document[at:]

    def _locate(self):
        if self._start is not None:
            return
        self._parent._locate()
        text = self._document
        at = self._parent._start
        while member := _MEMBER.match(text, at):
            start = member.end()
            at = _end_of_value(text, start)
            if _content(member[1]) == self._name:
                self._start, self._end = start, at


# The scanner. It works (but for `_too_deep`) on what json.loads has accepted. Its patterns are
# possessive: having matched, they try no other way, and need no memory for it.

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_SPACES = r"[ \t\n\r]*+"
_SPACE = re.compile(_SPACES)
# What stands before an element.
_SEPARATOR = re.compile(rf"{_SPACES}[\[,]{_SPACES}")
# What stands before a member's value: brace or comma, name, colon.
_MEMBER = re.compile(rf"{_SPACES}[{{,]{_SPACES}({_STRING}){_SPACES}:{_SPACES}", re.DOTALL)
# A name with its colon, or another string.
_NAME = re.compile(rf"({_STRING}){_SPACES}:{_SPACES}|{_STRING}", re.DOTALL)
# Whatever is no bracket, strings as a whole.
_TO_BRACKET = re.compile(rf'(?:[^"{{}}\[\]]++|{_STRING})*+', re.DOTALL)
# A string, a number, true, false or null.
_SCALAR = re.compile(rf"{_STRING}|[-+.0-9a-zA-Z]++", re.DOTALL)

# Deeper nesting would overflow the stack in json.loads: a trap, and not an exception.
_MAX_DEPTH = 128

# Python refuses to read longer integers, since that takes long.
_MAX_DIGITS = 4000


def _too_deep(text):
    # Most documents have too few brackets to be deep, whatever their order.
    if text.count("{") + text.count("[") <= _MAX_DEPTH:
        return False
    depth = 0
    at = _TO_BRACKET.match(text).end()
    # It stops at a quote if a string has no end; json.loads will say so.
    while at < len(text) and text[at] != '"':
        depth += 1 if text[at] in "{[" else -1
        if depth > _MAX_DEPTH:
            return True
        at = _TO_BRACKET.match(text, at + 1).end()
    return False


def _end_of_value(text, at):
    """Behind the value that begins at `at`."""
    if scalar := _SCALAR.match(text, at):
        return scalar.end()
    depth = 0
    while True:
        depth += 1 if text[at] in "{[" else -1
        at += 1
        if depth == 0:
            return at
        at = _TO_BRACKET.match(text, at).end()


def _content(string):
    """What a JSON string with its quotes says."""
    return _json.loads(string) if "\\" in string else string[1:-1]


def _integer(digits):
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _refuse(constant):
    # NaN and Infinity are no JSON; Python's parser takes them.
    raise ValueError(constant)
