//! What a guest finds when it looks around: our `host` interface, and a WASI with nothing behind it.
//!
//! `load.rs` links components against [`linker`]; `instance.rs` puts one [`GuestState`] into each
//! store. The list of import names a component may have at all is in `inspect.rs`, and is checked
//! before. No file, no network, no environment, no arguments and no input is ever given.

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime::{Engine, ResourceLimiter};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::bindings::haulier::relay::host as wit;
use super::deadline::Meter;
use super::engine::TABLE_ELEMENTS;
use super::log::{GuestLog, Level};

/// Streams, clocks and the like that a guest may hold at once. Each costs the host memory that is
/// not the guest's.
pub(super) const MAX_HANDLES: usize = 1000;

/// Random bytes a guest may ask for at once; they too are made in the host's memory.
const MAX_RANDOM: u64 = 64 << 10;

/// The host's side of one instance.
pub(super) struct GuestState {
    wasi: WasiCtx,
    table: ResourceTable,
    /// Time.
    pub(super) meter: Arc<Meter>,
    /// Memory.
    pub(super) quota: Quota,
    /// Words.
    pub(super) log: GuestLog,
    /// The event of the running call that the guest entered last.
    pub(super) entered: Option<u32>,
}

impl GuestState {
    /// A state for an instance that may have `memory` bytes and speaks through `log`.
    pub(super) fn new(memory: usize, log: GuestLog) -> Self {
        let wasi = WasiCtx::builder()
            .stdout(log.stream(Level::Info))
            .stderr(log.stream(Level::Warn))
            // Two refusals more than needed: sockets cannot even be imported.
            .allow_tcp(false)
            .allow_udp(false)
            .max_random_size(MAX_RANDOM)
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        Self {
            wasi,
            table,
            meter: Arc::new(Meter::default()),
            quota: Quota { limit: memory, used: 0, refused: None },
            log,
            entered: None,
        }
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl wit::Host for GuestState {
    fn log(&mut self, level: wit::Level, message: String) {
        let level = match level {
            wit::Level::Debug => Level::Debug,
            wit::Level::Info => Level::Info,
            wit::Level::Warn => Level::Warn,
            wit::Level::Error => Level::Error,
        };
        self.log.line(level, &message);
    }

    fn enter(&mut self, index: u32) {
        self.entered = Some(index);
        self.meter.begin_event();
    }
}

/// Everything a plugin can be linked against.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wit::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut GuestState| state)?;
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    Ok(linker)
}

/// The memory of one instance, over all of its memories. More is refused rather than answered with
/// a trap: an interpreter then collects its garbage, and a Rust guest says how much it wanted.
#[derive(Debug)]
pub(super) struct Quota {
    limit: usize,
    used: usize,
    /// How much memory in all was last asked for and refused.
    refused: Option<usize>,
}

impl Quota {
    /// Whether it is time to retire the instance: memory never shrinks.
    pub(super) fn is_nearly_used_up(&self) -> bool {
        self.used / 3 >= self.limit / 4
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// How much was refused since the last call of this, and the limit.
    pub(super) fn take_refused(&mut self) -> Option<(usize, usize)> {
        self.refused.take().map(|wanted| (wanted, self.limit))
    }
}

impl ResourceLimiter for Quota {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = self.used.saturating_sub(current).saturating_add(desired);
        let fits = wanted <= self.limit;
        if fits {
            self.used = wanted;
        } else {
            self.refused = Some(wanted);
        }
        Ok(fits)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_share_one_quota() {
        let mut quota = Quota { limit: 100, used: 0, refused: None };
        let mut grow = |current, desired| quota.memory_growing(current, desired, None).ok();
        assert_eq!(grow(0, 40), Some(true));
        assert_eq!(grow(0, 40), Some(true));
        assert_eq!(grow(40, 70), Some(false));
        assert!(quota.is_nearly_used_up());
        assert_eq!(quota.take_refused(), Some((110, 100)));
        assert_eq!(quota.take_refused(), None);
    }
}
