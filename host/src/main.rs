//! The `haulier` binary: parse, load the settings where they are needed, run one command, exit with its
//! code.

use std::process::ExitCode;

use clap::Parser as _;
use haulier::cli::{self, Args, Command, Exit, RoutesCommand};

fn main() -> ExitCode {
    let args = Args::parse();
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("haulier")
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            let done = runtime.block_on(obey(&args)).unwrap_or_else(Ok);
            // A thread that is stuck in the broker's client must not keep the process.
            runtime.shutdown_background();
            done
        });
    done.unwrap_or_else(|error| {
        cli::complain(format_args!("{error:#}"));
        Exit::Failure
    })
    .into()
}

/// Runs the command; an `Err` is the end of one whose settings are wrong.
async fn obey(args: &Args) -> Result<anyhow::Result<Exit>, Exit> {
    let config = || cli::load_config(args.config.as_deref());
    Ok(match &args.command {
        Command::Init(init) => cli::init(args.config.as_deref(), init).await,
        Command::Run => cli::run(&config()?, args.config.as_deref()).await,
        Command::Migrate(migrate) => cli::migrate(config()?, migrate).await,
        Command::Check(check) => cli::check(&config()?, check).await,
        Command::Health(health) => cli::health(&config()?, health).await,
        Command::Status(status) => cli::status(&config()?, status).await,
        Command::Events(command) => cli::events(&config()?, command).await,
        Command::Keys(command) => cli::keys(&config()?, command).await,
        Command::Replay(replay) => cli::replay(&config()?, replay).await,
        Command::Audit(audit) => cli::audit(&config()?, audit).await,
        Command::Plugin(command) => cli::plugin(args.config.as_deref(), command).await?,
        Command::Routes(RoutesCommand::Explain(explain)) => cli::explain(&config()?, explain).await,
        Command::Plan(plan) => cli::plan(&config()?, plan).await,
        Command::Demo(demo) => cli::demo(demo).await,
        Command::Reference => cli::reference(),
    })
}
