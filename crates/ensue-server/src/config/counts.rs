//! Numbers within bounds.

use super::{Source, file, first};
use anyhow::bail;
use serde_saphyr::Spanned;
use std::path::PathBuf;

/// A number as it is given or in the file, or its default; and who decides it. A refusal names its place.
pub(super) fn resolve(
    name: &str,
    by: Source,
    given: Option<usize>,
    in_file: Option<Spanned<usize>>,
    file: &Option<PathBuf>,
    (default, max): (usize, usize),
) -> anyhow::Result<(usize, Source)> {
    let place = match (given, &in_file, file) {
        (None, Some(count), Some(file)) => format!("{}: `{name}`", file::place(file, count)),
        (Some(_), _, _) | (None, None, _) | (None, Some(_), None) => {
            format!("--{} (or ENSUE_{})", name.replace('_', "-"), name.to_uppercase())
        }
    };
    let (count, by) = first(by, given, in_file.map(|count| count.value));
    let count = count.unwrap_or(default);
    if !(1..=max).contains(&count) {
        bail!("{place} is {count}; choose between 1 and {max}");
    }
    Ok((count, by))
}

#[cfg(test)]
mod tests {
    use super::super::{Given, Settings, Source};
    use ensue::READ_AHEAD;
    use ensue::jobs::WORKERS;

    #[test]
    fn numbers_are_within_bounds_and_refused_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("my.yaml");
        let resolved = |text: &str| {
            std::fs::write(&config, text).unwrap();
            Settings::resolve(Given { config: Some(config.clone()), ..Given::default() })
                .map(|settings| (settings.workers, settings.read_ahead))
        };
        assert_eq!(resolved("").unwrap(), (WORKERS, READ_AHEAD));
        assert_eq!(resolved("workers: 3\nread_ahead: 2048\n").unwrap(), (3, 2_048));
        let table = [
            ("workers: 0\n", "my.yaml:1:10: `workers` is 0; choose between 1 and 10000"),
            ("workers: 10001\n", "my.yaml:1:10: `workers` is 10001; choose between 1 and 10000"),
            ("read_ahead: 0\n", "my.yaml:1:13: `read_ahead` is 0; choose between 1 and 16384"),
        ];
        for (bad, told) in table {
            let refusal = resolved(bad).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
        assert!(resolved("workers: -1\n").is_err() && resolved("workers: many\n").is_err());
        std::fs::write(&config, "workers: 3\n").unwrap();
        let flag = |workers| Given { config: Some(config.clone()), workers: Some(workers), ..Given::default() };
        let settings = Settings::resolve(flag(5)).unwrap();
        assert_eq!((settings.workers, settings.said_by.workers), (5, Source::Flag));
        let refusal = Settings::resolve(flag(0)).unwrap_err().to_string();
        assert!(refusal.starts_with("--workers (or ENSUE_WORKERS) is 0; choose between 1"), "{refusal}");
        let given = Given { read_ahead: Some(0), ..Given::default() };
        let refusal = Settings::resolve(given).unwrap_err().to_string();
        assert!(refusal.starts_with("--read-ahead (or ENSUE_READ_AHEAD) is 0"), "{refusal}");
    }
}
