//! A plugin built for `haulier:relay@0.2.0`, which this host does not speak.
//!
//! The host's tests put it into a plugins folder to see it refused. It never runs.

wit_bindgen::generate!({
    inline: "
        package haulier:relay@0.2.0;
        interface transformer { describe: func() -> string; }
        world plugin { export transformer; }
    ",
});

struct Future;

impl exports::haulier::relay::transformer::Guest for Future {
    fn describe() -> String {
        "from the future".to_owned()
    }
}

export!(Future);
