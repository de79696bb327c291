//! Where does a test get a disk from that can be full?
//!
//! A small file system in memory, mounted for the test: that needs root. A test that was not run must not look like one
//! that passed, so whoever runs the tests where mounting is impossible has to say so: `scripts/test.sh` finds it out.

use std::path::Path;
use std::process::Command;

/// The variable that says, with the value 1, that mounting is not possible here.
const NO_MOUNT: &str = "ENSUE_TEST_NO_MOUNT";

/// Mounts a file system of this size on a folder; false if `ENSUE_TEST_NO_MOUNT` says that this cannot be.
///
/// # Panics
/// If it cannot be mounted although nobody said so.
#[must_use]
pub fn mount_small(folder: &Path, mebibytes: u32) -> bool {
    if std::env::var_os(NO_MOUNT).is_some_and(|value| value == "1") {
        eprintln!("not run: {NO_MOUNT}=1 says that no file system can be mounted here");
        return false;
    }
    let size = format!("size={mebibytes}m");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
    let trouble = match mounted {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
        Err(error) => error.to_string(),
    };
    panic!("cannot mount a small file system ({trouble}): run the tests as root, or set {NO_MOUNT}=1 to go without")
}
