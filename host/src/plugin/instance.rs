//! One instance of a plugin: its store, its limits, and the calls into it.
//!
//! `load.rs` makes instances to ask a plugin who it is and to try its settings; `transform.rs` makes
//! them to decide batches. Every call, instantiation included, runs under a deadline and a
//! memory limit, and a failure comes back as data. An instance whose call failed must be dropped: the
//! runtime does not let anyone enter it again.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::batch::Fault;
use super::bindings::exports::haulier::relay::transformer::Manifest;
use super::bindings::{Plugin, PluginPre};
use super::config::Limits;
use super::convert::{self, Input, Loan, Verdict};
use super::deadline::OutOfTime;
use super::engine::Ticker;
use super::imports::{GuestState, MAX_HANDLES};
use super::log::{GuestLog, LogBudget};
use crate::failure::Cause;

/// Batches after which an instance that is used again is retired, lest a leak builds up.
const MAX_BATCHES: u32 = 1000;

/// What the host may have to allocate to receive the answer for one event, besides its bytes.
const ANSWER_OVERHEAD: usize = 4 << 10;

/// What the host may have to allocate to receive a manifest or an error of `configure`.
const START_OUTPUT: usize = 1 << 20;

/// Frames of a backtrace that are kept.
const FRAMES: usize = 8;

/// How wasmtime says that the answer was larger than it was allowed to copy; it has no type for it.
const TOO_MUCH_COPIED: &str = "fuel allocated for hostcalls has been exhausted";

/// What instances of one plugin version are made from.
#[derive(Clone)]
pub(super) struct Template {
    pub(super) pre: PluginPre<GuestState>,
    pub(super) limits: Limits,
    /// After what holds the engine, so that it finds the engine gone when it is dropped.
    pub(super) ticker: Arc<Ticker>,
}

/// A guest, ready to be called.
pub(super) struct Instance {
    store: Store<GuestState>,
    guest: Plugin,
    limits: Limits,
    ticker: Arc<Ticker>,
    batches: u32,
}

/// Why a guest stopped before it answered.
#[derive(Debug)]
pub(super) enum Stopped {
    /// By its own doing.
    Guest(Cause, String),
    /// There are too many instances at present.
    Crowded(String),
}

impl Stopped {
    /// What happened, in words.
    pub(super) fn text(self) -> String {
        match self {
            Self::Guest(_, text) | Self::Crowded(text) => text,
        }
    }
}

impl Template {
    /// A new instance, not yet configured.
    pub(super) async fn instantiate(&self, words: &Arc<LogBudget>) -> Result<Instance, Stopped> {
        let limits = &self.limits;
        let log = GuestLog::new(words.clone());
        let mut store = Store::new(self.pre.engine(), GuestState::new(limits.memory, log));
        store.set_max_component_handles(MAX_HANDLES);
        store.limiter(|state| &mut state.quota);
        store.set_hostcall_fuel(START_OUTPUT);
        store.epoch_deadline_callback(|store| {
            store.data().meter.tick()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        let deadline = limits.configure_deadline;
        let guest = {
            let call = async |store: &mut Store<_>| self.pre.instantiate_async(store).await;
            guarded(&mut store, &self.ticker, deadline, deadline, call).await.0?
        };
        let (limits, ticker) = (limits.clone(), self.ticker.clone());
        Ok(Instance { store, guest, limits, ticker, batches: 0 })
    }

    /// A new instance with its settings.
    pub(super) async fn configured(
        &self,
        settings: &str,
        words: &Arc<LogBudget>,
    ) -> Result<Instance, Stopped> {
        let mut instance = self.instantiate(words).await?;
        match instance.configure(settings).await? {
            Ok(()) => Ok(instance),
            Err(text) => Err(Stopped::Guest(Cause::PluginRejected, text)),
        }
    }
}

impl Instance {
    /// Asks the plugin who it is.
    pub(super) async fn describe(&mut self) -> Result<Manifest, Stopped> {
        let Self { store, guest, limits, ticker, .. } = self;
        let deadline = limits.configure_deadline;
        let call = async |store: &mut Store<_>| {
            guest.haulier_relay_transformer().call_describe(store).await
        };
        guarded(store, ticker, deadline, deadline, call).await.0
    }

    /// Hands the settings over. The inner error is what the plugin has against them.
    pub(super) async fn configure(
        &mut self,
        settings: &str,
    ) -> Result<Result<(), String>, Stopped> {
        let Self { store, guest, limits, ticker, .. } = self;
        let deadline = limits.configure_deadline;
        let call = async |store: &mut Store<_>| {
            guest.haulier_relay_transformer().call_configure(store, settings).await
        };
        guarded(store, ticker, deadline, deadline, call).await.0
    }

    /// Has the plugin decide these events. Also returns what it cost.
    pub(super) async fn transform(
        &mut self,
        inputs: &[&Input],
        words: &Arc<LogBudget>,
    ) -> (Result<Vec<Verdict>, Fault>, Duration) {
        self.batches += 1;
        let Self { store, guest, limits, ticker, .. } = self;
        store.data().log.spend(words);
        let given: usize = inputs.iter().map(|input| input.bytes()).sum();
        let overhead = inputs.len().saturating_mul(ANSWER_OVERHEAD);
        store.set_hostcall_fuel(limits.output(given).saturating_add(overhead));

        let loan = Loan::new(inputs);
        let events = loan.events();
        let call = async |store: &mut Store<_>| {
            guest.haulier_relay_transformer().call_transform(store, &events).await
        };
        let (whole, single) = (limits.batch_deadline(inputs.len()), limits.batch_deadline(1));
        let (answers, used) = guarded(store, ticker, whole, single, call).await;
        let verdicts = match answers {
            Ok(answers) if answers.len() != inputs.len() => Err(unusable(format!(
                "returned {} results for {} events",
                answers.len(),
                inputs.len()
            ))),
            Ok(answers) => convert::verdicts(answers, inputs, limits).map_err(unusable),
            Err(Stopped::Crowded(text)) => Err(Fault::Unavailable(text)),
            Err(Stopped::Guest(cause, message)) => {
                let entered = store.data().entered;
                let entered = entered.and_then(|index| usize::try_from(index).ok());
                Err(Fault::Guest { cause, message, entered })
            }
        };
        (verdicts, used)
    }

    /// Linear memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.store.data().quota.used()
    }

    /// Whether this instance has decided no batch yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.batches == 0
    }

    /// Whether it is time to make a new one.
    pub(super) fn is_worn_out(&self) -> bool {
        self.batches >= MAX_BATCHES || self.store.data().quota.is_nearly_used_up()
    }
}

/// An answer that came back whole and cannot be used. The marker stands at the last event then, and
/// says nothing.
fn unusable(message: String) -> Fault {
    Fault::Guest { cause: Cause::PluginOutput, message, entered: None }
}

/// Runs one call under its deadlines, with the ticker going and the log open.
async fn guarded<T>(
    store: &mut Store<GuestState>,
    ticker: &Ticker,
    whole: Duration,
    single: Duration,
    call: impl AsyncFnOnce(&mut Store<GuestState>) -> wasmtime::Result<T>,
) -> (Result<T, Stopped>, Duration) {
    let _running = ticker.running();
    let state = store.data_mut();
    state.entered = None;
    state.log.begin();
    let meter = state.meter.clone();
    meter.open(whole, single);
    store.set_epoch_deadline(1);

    let (result, used) = meter.bound(call(store)).await;
    let result = match result {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(stopped(&error, store.data_mut())),
        Err(waited) => Err(Stopped::Guest(Cause::PluginTimeout, waited.to_string())),
    };
    store.data().log.end();
    (result, used)
}

/// What a failed call means.
fn stopped(error: &wasmtime::Error, state: &mut GuestState) -> Stopped {
    if let Some(crowded) = error.downcast_ref::<PoolConcurrencyLimitError>() {
        return Stopped::Crowded(format!("too many plugin instances at once: {crowded}"));
    }
    if let Some(late) = error.downcast_ref::<OutOfTime>() {
        return Stopped::Guest(Cause::PluginTimeout, story(&late.to_string(), error, state));
    }
    if let Some((wanted, limit)) = state.quota.take_refused() {
        let what = format!("asked for {wanted} bytes of memory; at most {limit} are allowed");
        return Stopped::Guest(Cause::PluginMemory, story(&what, error, state));
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return Stopped::Guest(Cause::PluginTrap, story(&trap.to_string(), error, state));
    }
    if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
        let what = format!("called exit({code})");
        return Stopped::Guest(Cause::PluginTrap, story(&what, error, state));
    }
    let what = error.root_cause().to_string();
    if what.contains(TOO_MUCH_COPIED) {
        let what = "handed over more than the host takes in one call".to_owned();
        return Stopped::Guest(Cause::PluginOutput, what);
    }
    // An error with guest frames happened while the guest ran; without, while its answer was read.
    match error.downcast_ref::<WasmBacktrace>() {
        Some(trace) if !trace.frames().is_empty() => {
            Stopped::Guest(Cause::PluginTrap, story(&what, error, state))
        }
        _ => Stopped::Guest(Cause::PluginOutput, format!("returned malformed data: {what}")),
    }
}

/// What happened, what the guest printed about it (a panic's text), and where.
fn story(what: &str, error: &wasmtime::Error, state: &GuestState) -> String {
    let mut story = what.to_owned();
    let printed = state.log.printed();
    if !printed.is_empty() {
        story.push_str("\nprinted: ");
        story.push_str(&printed);
    }
    if let Some(trace) = error.downcast_ref::<WasmBacktrace>() {
        // The first line is a heading.
        for frame in trace.to_string().lines().skip(1).take(FRAMES) {
            story.push_str("\nat ");
            story.push_str(frame.trim());
        }
    }
    story
}
