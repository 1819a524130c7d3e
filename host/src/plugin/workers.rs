//! The threads that run guests.
//!
//! They are a runtime of their own, at a lower priority than the rest of the process: a plugin that
//! computes for a second delays other plugins, and neither the database nor the broker. `host.rs`
//! makes one; every plugin keeps a handle. Nothing but guests runs here.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinError, JoinHandle};

/// How much lower: at +5 a thread gets about a third of what one at 0 gets when both want the core.
const NICENESS: i32 = 5;

/// Compiling a component is nobody's hurry.
const COMPILER_NICENESS: i32 = 10;

/// The guests' runtime. Dropping the last handle stops what still runs.
#[derive(Debug)]
pub(super) struct Workers {
    threads: usize,
    /// Taken only by `drop`.
    runtime: Option<Runtime>,
}

impl Workers {
    /// Starts `threads` threads.
    pub(super) fn start(threads: usize) -> io::Result<Arc<Self>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("plugin-worker")
            .on_thread_start(|| lower_priority(NICENESS))
            .enable_time()
            .build()?;
        Ok(Arc::new(Self { threads, runtime: Some(runtime) }))
    }

    /// How many guests can run at once.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on the present thread, which must not be an async one.
    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    /// Runs `work` on these threads. It is stopped if the caller loses interest.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        let mut task = Task(self.runtime().spawn(work));
        (&mut task.0).await
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime is there until drop")
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last handle may be dropped on an async thread, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// A task that ends with its handle.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lowers the priority of the present thread for compiling.
pub(super) fn lower_priority_for_compiling() {
    lower_priority(COMPILER_NICENESS);
}

/// On Linux a priority belongs to a thread, and "process 0" is the one that asks. It is a courtesy,
/// not a promise: if the system refuses, guests run at the priority of everything else.
fn lower_priority(niceness: i32) {
    let lowered = rustix::process::getpriority_process(None)
        .and_then(|now| rustix::process::setpriority_process(None, now + niceness));
    if let Err(error) = lowered {
        tracing::debug!(%error, "thread priority not lowered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_asking_thread_is_lowered() {
        let before = rustix::process::getpriority_process(None).expect("a priority");
        let lowered = std::thread::spawn(move || {
            lower_priority(NICENESS);
            rustix::process::getpriority_process(None).expect("a priority")
        });
        assert_eq!(lowered.join().expect("no panic"), (before + NICENESS).min(19));
        assert_eq!(rustix::process::getpriority_process(None), Ok(before));
    }
}
