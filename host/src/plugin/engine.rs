//! The wasmtime engine, and the ticker that makes running guests come up for air.
//!
//! `host.rs` makes one of each. The ticker's thread holds the engine weakly: when the plugin host is
//! dropped, the engine goes and the thread ends. It sleeps while no guest runs, so an idle relay
//! does not wake up a thousand times a second.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::{Config, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

/// How often a running guest is interrupted, and so the precision of deadlines.
const TICK: Duration = Duration::from_millis(1);

/// Instances that may live at once, over all plugins, lanes and both versions of each during a
/// swap. They cost address space until they are used, no memory.
const MAX_INSTANCES: u32 = 1000;

/// The largest components known are interpreters: Python is linked from dozens of modules.
const CORE_INSTANCES_PER_COMPONENT: u32 = 64;
const TABLES_PER_COMPONENT: u32 = 64;
const MEMORIES_PER_COMPONENT: u32 = 4;
const COMPONENT_INSTANCE_BYTES: usize = 4 << 20;

/// Entries of one table; Python's function table has tens of thousands.
pub(super) const TABLE_ELEMENTS: usize = 50_000;

/// The most linear memory that any instance could be allowed. The address space of a slot is that large
/// in any case, so that bounds need no checks; what an instance may use of it is its own quota's
/// affair, and may be raised without another engine.
const MAX_MEMORY: usize = 4 << 30;

/// The engine of all plugins.
pub(super) fn engine() -> wasmtime::Result<Engine> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(MAX_INSTANCES)
        .total_core_instances(MAX_INSTANCES * 4)
        .total_memories(MAX_INSTANCES * 2)
        .total_tables(MAX_INSTANCES * 4)
        .total_stacks(MAX_INSTANCES)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_component_instance_size(COMPONENT_INSTANCE_BYTES)
        .max_core_instance_size(COMPONENT_INSTANCE_BYTES)
        .max_tables_per_module(TABLES_PER_COMPONENT)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(MAX_MEMORY);
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        // Only the pages that a guest has touched are reset when its slot is used again.
        pool.pagemap_scan(wasmtime::Enabled::Yes);
    }
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .epoch_interruption(true)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config)
}

/// Advances the engine's epoch every millisecond while a guest runs.
#[derive(Debug)]
pub(super) struct Ticker {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

impl Ticker {
    /// Starts the ticker's thread.
    pub(super) fn start(engine: &Engine) -> io::Result<Self> {
        let running = Arc::new(AtomicUsize::new(0));
        let seen = running.clone();
        let engine = engine.weak();
        let thread = thread::Builder::new()
            .name("plugin-ticker".to_owned())
            .spawn(move || tick(&engine, &seen))?
            .thread()
            .clone();
        Ok(Self { running, thread })
    }

    /// Keeps the ticker going for as long as what is returned lives.
    pub(super) fn running(&self) -> Running<'_> {
        if self.running.fetch_add(1, Ordering::SeqCst) == 0 {
            self.thread.unpark();
        }
        Running(self)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // The thread notices that the engine is gone only when it is awake.
        self.thread.unpark();
    }
}

/// A guest is running.
#[derive(Debug)]
pub(super) struct Running<'a>(&'a Ticker);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

fn tick(engine: &EngineWeak, running: &AtomicUsize) {
    loop {
        // An unpark that comes before the park makes it return at once: no wake-up is lost.
        while running.load(Ordering::SeqCst) == 0 {
            if engine.upgrade().is_none() {
                return;
            }
            thread::park();
        }
        #[expect(clippy::disallowed_methods, reason = "this thread does nothing but tick")]
        thread::sleep(TICK);
        match engine.upgrade() {
            Some(engine) => engine.increment_epoch(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn wait_until(what: impl Fn() -> bool) {
        let began = Instant::now();
        while !what() {
            assert!(began.elapsed() < Duration::from_secs(10), "it does not happen");
            #[expect(clippy::disallowed_methods, reason = "the test has nothing else to do")]
            thread::sleep(TICK);
        }
    }

    #[test]
    fn the_thread_ends_with_the_engine() {
        let engine = engine().expect("an engine");
        let ticker = Ticker::start(&engine).expect("a thread");
        // The thread holds the other one.
        let held = ticker.running.clone();
        drop(ticker.running());
        drop(engine);
        drop(ticker);
        wait_until(|| Arc::strong_count(&held) == 1);
    }
}
