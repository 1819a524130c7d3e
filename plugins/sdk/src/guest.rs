//! What stands between the contract's three functions and a [`Plugin`]: its instance's state and the
//! loop over a batch.
//!
//! [`export!`](crate::export) calls it from the plugin's crate, hence `pub`; it is no part of the
//! API. It never copies an event.

use std::cell::OnceCell;

pub use crate::bindings::exports::haulier::relay::transformer::Guest;

use crate::{Event, Plugin, Settings, Verdict, reject};

/// `configure` of the contract: makes the plugin.
///
/// # Errors
/// What the plugin says is wrong with its settings.
pub fn configure<P: Plugin>(slot: &OnceCell<P>, settings: String) -> Result<(), String> {
    let plugin = P::new(Settings::from(settings))?;
    slot.set(plugin).map_err(|_| "configured twice".to_owned())
}

/// `transform` of the contract: one verdict per event, in their order.
pub fn transform<P: Plugin>(slot: &OnceCell<P>, events: &[Event]) -> Vec<Verdict> {
    let unconfigured = match slot.get() {
        Some(_) => None,
        // The host configures before the first batch; whoever does not means no settings.
        None => configure(slot, "{}".to_owned()).err(),
    };
    let Some(plugin) = slot.get() else {
        let text = unconfigured.unwrap_or_default();
        return events.iter().map(|_| Err(reject(text.as_str()))).collect();
    };
    let mut verdicts = Vec::with_capacity(events.len());
    for (index, event) in (0u32..).zip(events) {
        enter(index);
        verdicts.push(plugin.transform(event));
    }
    verdicts
}

/// Should the event at `index` make the plugin panic, the host knows which one it was.
#[cfg(target_family = "wasm")]
fn enter(index: u32) {
    crate::bindings::haulier::relay::host::enter(index);
}

/// There is no host to tell in a unit test.
#[cfg(not(target_family = "wasm"))]
const fn enter(_index: u32) {}

/// Makes the component's exports from a type that implements [`Plugin`](crate::Plugin). Once per
/// crate, which must be a `cdylib`.
///
/// ```
/// # use haulier_sdk::{Event, Manifest, Outcome, Plugin, Settings, Verdict};
/// # struct Mine;
/// # impl Plugin for Mine {
/// #     fn manifest() -> Manifest { Manifest::new("mine", "1") }
/// #     fn new(_: Settings) -> Result<Self, String> { Ok(Self) }
/// #     fn transform(&self, _: &Event) -> Verdict { Ok(Outcome::unchanged()) }
/// # }
/// haulier_sdk::export!(Mine);
/// ```
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        const _: () = {
            ::std::thread_local! {
                /// The plugin as its settings made it.
                static PLUGIN: ::std::cell::OnceCell<$plugin> =
                    const { ::std::cell::OnceCell::new() };
            }

            struct Component;

            impl $crate::guest::Guest for Component {
                fn describe() -> $crate::Manifest {
                    <$plugin as $crate::Plugin>::manifest()
                }

                fn configure(settings: ::std::string::String) -> Result<(), ::std::string::String> {
                    PLUGIN.with(|slot| $crate::guest::configure(slot, settings))
                }

                fn transform(
                    events: ::std::vec::Vec<$crate::Event>,
                ) -> ::std::vec::Vec<$crate::Verdict> {
                    PLUGIN.with(|slot| $crate::guest::transform(slot, &events))
                }
            }

            // Natively there is nobody to export to, and linkers dislike the names.
            #[cfg(target_family = "wasm")]
    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}

#[cfg(test)]
mod tests {
    use crate::{Manifest, NoSettings, Outcome};

    use super::*;

    struct Echo;

    impl Plugin for Echo {
        fn manifest() -> Manifest {
            Manifest::new("echo", "1")
        }

        fn new(settings: Settings) -> Result<Self, String> {
            settings.parse::<NoSettings>().map(|_| Self)
        }

        fn transform(&self, event: &Event) -> Verdict {
            Ok(Outcome::drop(event.event_type.as_str()))
        }
    }

    #[test]
    fn verdicts_come_in_the_order_of_the_events() {
        let slot = OnceCell::new();
        assert_eq!(configure::<Echo>(&slot, "{}".to_owned()), Ok(()));
        let verdicts = transform(&slot, &[Event::new("a"), Event::new("b")]);
        assert_eq!(verdicts, [Ok(Outcome::drop("a")), Ok(Outcome::drop("b"))]);
    }

    #[test]
    fn a_second_configuration_is_refused() {
        let slot = OnceCell::<Echo>::new();
        assert_eq!(configure(&slot, "{}".to_owned()), Ok(()));
        assert_eq!(configure(&slot, "{}".to_owned()), Err("configured twice".to_owned()));
    }

    #[test]
    fn without_a_configuration_there_are_no_settings() {
        let slot = OnceCell::<Echo>::new();
        assert_eq!(transform(&slot, &[Event::new("a")]), [Ok(Outcome::drop("a"))]);
    }
}
