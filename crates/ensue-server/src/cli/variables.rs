//! Which variables are meant for us and read by nobody?
//!
//! A mistyped flag is refused; a mistyped `ENSUE_LISEN` would be passed over, and the server listen elsewhere than its owner
//! believes. It is only warned of: a variable may be there for another version.
//!
//! Variables with secrets are removed once they are read ([`hide`]).

use super::logging::LOG_VARIABLE;
use clap::Command;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// What all variables of ours begin with.
const PREFIX: &str = "ENSUE_";
/// Those of the project's own tests.
const TESTS: &str = "ENSUE_TEST_";

/// Removes the variables that hold secrets, and overwrites their values where the system shows the environment that a
/// process was started with (`/proc/PID/environ`): programs that this process starts run as the same user, and could read
/// them there. To be called after the command line is parsed, and before there is another thread.
#[expect(unsafe_code, reason = "the initial environment has no other access")]
pub fn hide() {
    use std::ffi::{CStr, c_char};

    unsafe extern "C" {
        static environ: *const *mut c_char;
    }

    for name in crate::executors::SECRET_VARIABLES {
        // SAFETY: there is one thread, so that nobody else reads or changes the environment. `environ` is a list of C
        // strings that ends with a null pointer. They were made by the system, or by `setenv`, in memory that may be
        // written; a value is overwritten within its length.
        unsafe {
            let mut entry = environ;
            while !entry.is_null() && !(*entry).is_null() {
                let text = CStr::from_ptr(*entry).to_bytes();
                let is_it = text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
                let (start, end) = (name.len() + 1, text.len());
                if is_it {
                    for index in start..end {
                        (*entry).add(index).write_volatile(0);
                    }
                }
                entry = entry.add(1);
            }
            std::env::remove_var(name);
        }
    }
}

/// One warning for each variable of the environment that has our name and that no command reads.
pub fn warnings(command: &Command, environment: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let mut known = BTreeSet::from([LOG_VARIABLE.to_string()]);
    // What a handler's program is told about its event, and passes on when it calls `ensue` itself.
    known.extend(crate::executors::VARIABLES.map(str::to_string));
    known.extend(crate::executors::TASK_VARIABLES.map(str::to_string));
    known.insert(crate::executors::CLAIM_VARIABLE.to_string());
    collect(command, &mut known);
    let ours = environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let unknown = ours.filter(|(name, value)| {
        let ours = name.starts_with(PREFIX) && !name.starts_with(TESTS);
        ours && !known.contains(name) && !is_of_a_service(name, value)
    });
    unknown.map(|(name, _)| warning(&name, &known)).collect()
}

fn collect(command: &Command, known: &mut BTreeSet<String>) {
    known.extend(command.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_str()?.to_string())));
    command.get_subcommands().for_each(|sub| collect(sub, known));
}

/// Kubernetes tells every container of a service called `ensue` with `ENSUE_SERVICE_HOST`, `ENSUE_PORT=tcp://…` and others.
fn is_of_a_service(name: &str, value: &OsString) -> bool {
    let is_address = || value.to_str().is_some_and(|value| value.contains("://"));
    name.starts_with("ENSUE_SERVICE_") || name.starts_with("ENSUE_PORT_") || name == "ENSUE_PORT" && is_address()
}

fn warning(name: &str, known: &BTreeSet<String>) -> String {
    let distance = |known: &str| distance(&name[PREFIX.len()..], &known[PREFIX.len()..]);
    let nearest = known.iter().min_by_key(|known| distance(known)).filter(|known| 2 * distance(known) <= known.len());
    match nearest {
        Some(nearest) => format!("{name} is not a variable of ensue and is passed over: did you mean {nearest}?"),
        None => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            format!("{name} is not a variable of ensue and is passed over; there are {}", known.join(", "))
        }
    }
}

/// How many letters must be put in, taken out or replaced to make one of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (taken, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = taken + 1;
        for (index, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn told(name: &str, value: &str) -> Vec<String> {
        warnings(&super::super::Cli::command(), [(name.into(), value.into())].into_iter())
    }

    #[test]
    fn a_variable_that_nobody_reads_is_told_with_the_nearest_that_is_read() {
        for (name, nearest) in [
            ("ENSUE_LISEN", "ENSUE_LISTEN"),
            ("ENSUE_TOKENFILE", "ENSUE_TOKEN_FILE"),
            ("ENSUE_STORE_URL", "ENSUE_STORE"),
            ("ENSUE_RETENTION", "ENSUE_RETENTION_AGE"),
        ] {
            let told = told(name, "x");
            assert!(told.len() == 1 && told[0].starts_with(name), "{told:?}");
            assert!(told[0].ends_with(&format!("did you mean {nearest}?")), "{told:?}");
        }
        let far = told("ENSUE_COMPLETELY_DIFFERENT", "x");
        assert!(far[0].contains("ENSUE_LOG") && far[0].contains("ENSUE_URL"), "{far:?}");
    }

    #[test]
    fn what_is_read_and_what_others_set_is_not_told() {
        for name in ["ENSUE_LISTEN", "ENSUE_LOG", "ENSUE_URL", "ENSUE_TOKEN", "ENSUE_TEST_POSTGRES", "PATH", "ENSUED"] {
            assert_eq!(told(name, "x"), [] as [&str; 0]);
        }
        assert_eq!(told("ENSUE_SERVICE_HOST", "10.0.0.1"), [] as [&str; 0]);
        assert_eq!(told("ENSUE_PORT", "tcp://10.0.0.1:4747"), [] as [&str; 0]);
        assert_eq!(told("ENSUE_PORT", "4747").len(), 1);
    }

    #[test]
    fn distances() {
        assert_eq!(["abc", "abd", "ab", "xabc", ""].map(|from| distance(from, "abc")), [0, 1, 1, 1, 3]);
    }
}
