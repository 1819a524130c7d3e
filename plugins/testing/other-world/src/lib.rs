//! A component that exports some other world: a good component, and not a plugin.
//!
//! The host's tests put it into a plugins folder to see it refused. It never runs.

wit_bindgen::generate!({
    inline: "
        package testing:other@1.0.0;
        interface greeter { greet: func() -> string; }
        world other { export greeter; }
    ",
});

struct Other;

impl exports::testing::other::greeter::Guest for Other {
    fn greet() -> String {
        "hello".to_owned()
    }
}

export!(Other);
