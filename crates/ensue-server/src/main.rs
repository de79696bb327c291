//! The `ensue` binary: everything it does is in the library, so that tests and applications can use it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    ensue_server::cli::main()
}
