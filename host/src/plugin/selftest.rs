//! Runs samples through a version, one event at a time.
//!
//! The loader runs those that a component ships before it is used ([`passes`]); `workbench.rs` runs those
//! of a file. Each sample has an instance of its own, with its own settings: what an operator has
//! configured neither helps nor disturbs it.

use std::time::{Duration, Instant};

use super::batch::Fault;
use super::convert::{Input, Verdict};
use super::instance::Stopped;
use super::log::LogBudget;
use super::sample::Sample;
use super::transform::Version;
use crate::failure::{Cause, Failure};

/// What all samples of a component may take: other files, and rules, wait for it.
const LIMIT: Duration = Duration::from_secs(10);

/// The settings of a sample that names none.
const NO_SETTINGS: &str = "{}";

/// What became of a sample.
pub(super) struct Ran {
    pub(super) verdict: Verdict,
    /// What the event took, without the start of the instance.
    pub(super) used: Duration,
    /// Linear memory of the instance in the end, in bytes.
    pub(super) memory: usize,
}

/// Runs one sample; `settings` holds where the sample has none of its own.
pub(super) async fn run(version: &Version, sample: &Sample, settings: Option<&str>) -> Ran {
    let failed = |cause, text: String| Ran {
        verdict: Err(Failure::new(cause, text)),
        used: Duration::ZERO,
        memory: 0,
    };
    let stamp = &version.stamp;
    let words = LogBudget::new(&stamp.name, &stamp.version, &version.template.limits);
    let settings = sample.settings.as_deref().or(settings).unwrap_or(NO_SETTINGS);
    let mut instance = match version.template.configured(settings, &words).await {
        Ok(instance) => instance,
        Err(Stopped::Guest(cause, text)) => {
            return failed(cause, format!("with settings {settings}: {text}"));
        }
        Err(Stopped::Crowded(text)) => return failed(Cause::PluginUnavailable, text),
    };
    let input = Input::new(&sample.event, &sample.lane, version.manifest.needs);
    let (answer, used) = instance.transform(&[&input], &words).await;
    words.close();
    let verdict = match answer {
        Ok(mut verdicts) => verdicts.pop().unwrap_or_else(|| {
            Err(Failure::new(Cause::PluginOutput, "the plugin gave no verdict"))
        }),
        Err(Fault::Guest { cause, message, .. }) => Err(Failure::new(cause, message)),
        Err(Fault::Unavailable(text)) => Err(Failure::new(Cause::PluginUnavailable, text)),
    };
    Ran { verdict, used, memory: instance.memory() }
}

/// Runs all samples.
///
/// # Errors
/// A text that names the first sample whose outcome is another than it expects.
pub(super) async fn passes(version: &Version, samples: &[Sample]) -> Result<(), String> {
    let began = Instant::now();
    for sample in samples {
        if began.elapsed() > LIMIT {
            return Err(format!(
                "they take longer than {} s; ship fewer, the others are for `haulier plugin test`",
                LIMIT.as_secs()
            ));
        }
        let ran = run(version, sample, None).await;
        let checked = match (&sample.expect, &ran.verdict) {
            (Some(expected), verdict) => expected.check(verdict),
            // Nothing is expected of it but an answer.
            (None, Err(failure)) if failure.cause != Cause::PluginRejected => {
                Err(failure.to_string())
            }
            (None, _) => Ok(()),
        };
        checked
            .map_err(|what| format!("sample {} ({}): {what}", sample.line, sample.event_type()))?;
    }
    Ok(())
}
