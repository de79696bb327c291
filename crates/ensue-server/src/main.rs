//! The `ensue` binary: everything it does is in the library, so that tests and applications can use it too.

use std::process::ExitCode;

/// Events are made by one thread and let go by another, which the C library's allocator takes locks for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ensue_server::cli::main()
}
