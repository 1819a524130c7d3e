//! The `haulier` binary as a process: started with a config of its own, watched, signalled, killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::build;
use crate::database::unique;

/// A running (or ended) `haulier`.
pub struct Haulier {
    child: Child,
    /// Its folder: config, plugins, log.
    pub folder: PathBuf,
    env: Vec<(String, String)>,
    admin: u16,
}

/// What to start.
#[derive(Clone)]
pub struct Setup {
    /// The config, without the `[admin]` table.
    pub config: String,
    /// Guests to put into its plugins folder, by name.
    pub guests: Vec<&'static str>,
    /// Environment for the process.
    pub env: Vec<(String, String)>,
    /// The IP address its admin port is opened on; reached by loopback.
    pub listen: &'static str,
    /// More lines of the `[admin]` table.
    pub admin: String,
}

impl Setup {
    /// A setup without plugins.
    pub fn new(config: impl Into<String>) -> Self {
        Self {
            config: config.into(),
            guests: Vec::new(),
            env: Vec::new(),
            listen: "127.0.0.1",
            admin: String::new(),
        }
    }

    /// With a guest in the plugins folder.
    #[must_use]
    pub fn guest(mut self, name: &'static str) -> Self {
        self.guests.push(name);
        self
    }

    /// The same with rules for its fail points, as `host/src/failpoint.rs` has them.
    #[must_use]
    pub fn failing(&self, rules: &str) -> Self {
        let mut failing = self.clone();
        failing.env.push(("HAULIER_FAIL_POINTS".into(), rules.into()));
        failing
    }

    /// A folder with config and plugins.
    ///
    /// # Panics
    /// When the disk refuses.
    pub fn folder(&self) -> (PathBuf, u16) {
        let folder = std::env::temp_dir().join(unique("haulier"));
        std::fs::create_dir_all(folder.join("plugins")).expect("a folder");
        let admin = free_port();
        let config = format!(
            "{}\n[admin]\nlisten = \"{}:{admin}\"\n{}",
            self.config, self.listen, self.admin
        );
        std::fs::write(folder.join("haulier.toml"), config).expect("a config");
        for guest in &self.guests {
            std::fs::copy(
                build::guest(guest),
                folder.join("plugins").join(format!("{guest}.wasm")),
            )
            .expect("a guest");
        }
        (folder, admin)
    }

    /// Runs a command of the binary to its end and returns its exit code and all it printed.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn command(&self, words: &[&str]) -> (Option<i32>, String) {
        let (folder, _) = self.folder();
        to_its_end(words, &folder, &self.env)
    }

    /// Migrates the sources.
    ///
    /// # Panics
    /// When that fails.
    pub fn migrate(&self) {
        let (code, text) = self.command(&["migrate"]);
        assert_eq!(code, Some(0), "haulier migrate: {text}");
    }

    /// Starts `haulier run`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&self) -> Haulier {
        let (folder, admin) = self.folder();
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let child = Command::new(build::haulier())
            .arg("run")
            .current_dir(&folder)
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("haulier starts");
        Haulier { child, folder, env: self.env.clone(), admin }
    }
}

/// Runs a command there to its end; its exit code and all it printed.
fn to_its_end(words: &[&str], folder: &Path, env: &[(String, String)]) -> (Option<i32>, String) {
    let output = Command::new(build::haulier())
        .args(words)
        .current_dir(folder)
        .envs(env.iter().cloned())
        .output()
        .expect("haulier starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

impl Haulier {
    /// Runs a command of the binary with the settings of this process.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn command(&self, words: &[&str]) -> (Option<i32>, String) {
        to_its_end(words, &self.folder, &self.env)
    }

    /// All it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Sends a signal by name, such as `TERM`.
    ///
    /// # Panics
    /// When there is no process any more.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success(), "no process to send {name} to: {}", self.log());
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has ended, by itself or by a signal.
    ///
    /// # Panics
    /// When it cannot be asked.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// SIGSTOP, and waits until all of it stands still.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub async fn stop(&self) {
        self.signal("STOP");
        self.stands_still().await;
    }

    /// Waits until the process is stopped, by whomever.
    ///
    /// # Panics
    /// When it is not within two minutes.
    pub async fn stands_still(&self) {
        let still =
            eventually(Duration::from_secs(120), async || state(self.pid()) == Some('T')).await;
        assert!(still, "haulier is not stopped: {}", self.log());
    }

    /// SIGCONT, and waits until it runs again.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub async fn go_on(&self) {
        self.signal("CONT");
        let runs =
            eventually(Duration::from_secs(60), async || state(self.pid()) != Some('T')).await;
        assert!(runs, "haulier does not go on: {}", self.log());
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// When it does not come within a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let child = &mut self.child;
        eventually(Duration::from_secs(60), async || {
            status = child.try_wait().expect("a child can be waited for");
            status.is_some()
        })
        .await;
        status.unwrap_or_else(|| panic!("haulier does not end: {}", self.log()))
    }

    /// kill -9, and waits for the corpse.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("a process can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// SIGTERM, and the exit status.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    /// GET on the admin port: status and body, or `None` while nothing answers.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        self.ask(&format!("GET {path} HTTP/1.1"), "").await
    }

    /// A request on the admin port with that token and a body.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: &str,
    ) -> Option<(u16, String)> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\nAuthorization: Bearer {token}"
        );
        self.ask(&head, body).await
    }

    /// POST on the admin port with that token.
    pub async fn post(&self, path: &str, token: &str) -> Option<(u16, String)> {
        self.call("POST", path, token, "").await
    }

    async fn ask(&self, head: &str, body: &str) -> Option<(u16, String)> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.admin)).await.ok()?;
        let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }

    /// The sum of the metric series of that name, or `None` when there is none.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await?;
        let series = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        series.map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Waits until a metric has at least that value.
    ///
    /// # Panics
    /// When it has not after two minutes.
    pub async fn reaches(&self, metric: &str, value: f64) {
        let mut last = None;
        let reached = eventually(Duration::from_secs(120), async || {
            last = self.metric(metric).await;
            last.is_some_and(|now| now >= value)
        })
        .await;
        assert!(reached, "wanted {metric} {value}, last saw {last:?}\n{}", self.log());
    }

    /// Puts a file into its folder, whole at once.
    ///
    /// # Panics
    /// When the disk refuses.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let part = self.folder.join("put.part");
        std::fs::write(&part, bytes).expect("a file");
        let path = self.folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::rename(part, path).expect("moved");
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// When it has not after two minutes.
    pub async fn ready(&self) {
        self.readiness(200, &[]).await;
    }

    /// Waits until `/readyz` answers 503 with a text that holds all of these.
    ///
    /// # Panics
    /// When it has not after two minutes.
    pub async fn unready(&self, parts: &[&str]) {
        self.readiness(503, parts).await;
    }

    async fn readiness(&self, status: u16, parts: &[&str]) {
        let mut last = None;
        let reached = eventually(Duration::from_secs(120), async || {
            last = self.get("/readyz").await;
            last.as_ref().is_some_and(|(code, body)| {
                *code == status && parts.iter().all(|part| body.contains(part))
            })
        })
        .await;
        assert!(reached, "wanted /readyz {status} {parts:?}, last saw {last:?}\n{}", self.log());
    }

    /// Waits until the log holds `text`.
    ///
    /// # Panics
    /// When it does not after two minutes.
    pub async fn logged(&self, text: &str) {
        let found = eventually(Duration::from_secs(120), async || self.log().contains(text)).await;
        assert!(found, "the log never said '{text}':\n{}", self.log());
    }
}

/// The state letter of a process as the kernel tells it, such as `T` for stopped.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

impl Drop for Haulier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Asks again and again until the answer is yes, or `limit` has passed.
pub async fn eventually(limit: Duration, mut question: impl AsyncFnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < limit {
        if question().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

/// A port nobody listens on.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
