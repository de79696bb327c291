//! What does a timing mean, in words, and is it what its author meant?

use super::cron::Cron;
use super::timing::{Timing, When};
use jiff::{SignedDuration, Timestamp};

impl Timing {
    /// What it means, in plain English.
    pub fn in_words(&self) -> String {
        match self.when() {
            When::Cron(cron) => {
                format!("{} ({})", cron.in_words(), self.zone_name())
            }
            When::Every(every) => format!("Every {}", duration_in_words(*every)),
        }
    }

    /// Why it probably does not mean what its author intended, and when it fires next; none if nothing seems odd.
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let When::Cron(cron) = self.when() else { return None };
        let Some(next) = self.next_after(now) else {
            return Some(format!(
                "`{}` has no time to come, and does not fire: look at its day, month and year",
                cron.as_str()
            ));
        };
        let next = next.to_zoned(self.zone().clone()).strftime("%Y-%m-%d %H:%M:%S %Z");
        Some(format!("{}; it fires next at {next}", odd(cron)?))
    }
}

/// What is odd about an expression.
fn odd(cron: &Cron) -> Option<String> {
    let pattern = cron.pattern();
    let (seconds, minutes, hours) = (pattern.seconds.values(), pattern.minutes.values(), pattern.hours.values());
    let (every_minute, every_hour) = (minutes.len() == 60, hours.len() == 24);
    if seconds.len() > 1 && !(every_minute && every_hour) {
        let times = seconds.len() * minutes.len() * hours.len();
        return Some(format!(
            "`{}` has {} seconds of a minute, but not every minute: it fires {times} times on each of its days, in bursts. The first \
             field is the second; for every minute write `* * * * *`",
            cron.as_str(),
            seconds.len()
        ));
    }
    if every_minute && hours.len() == 1 {
        return Some(format!(
            "`{}` fires in every minute of one hour, 60 times; for once a day write a minute, as in `0 {} * * *`",
            cron.as_str(),
            hours[0]
        ));
    }
    let both_days = !pattern.is_dom_wildcard() && !pattern.is_dow_wildcard() && !pattern.matches_dom_and_dow();
    if both_days {
        return Some(format!(
            "`{}` names days of the month and of the week, and fires on either; for days that are both write `+` before the day \
             of the week",
            cron.as_str()
        ));
    }
    uneven(cron, "minute", pattern.minutes.step, &minutes, 60)
        .or_else(|| uneven(cron, "hour", pattern.hours.step, &hours, 24))
}

/// Steps that do not come out even begin anew with each hour or day.
fn uneven(cron: &Cron, unit: &str, step: u16, values: &[u16], whole: u16) -> Option<String> {
    let is_whole = values.len() > 1 && values.len() == usize::from(whole.div_ceil(step.max(1)));
    if step <= 1 || whole.is_multiple_of(step) || !is_whole {
        return None;
    }
    let last = whole - values.last()?;
    Some(format!(
        "`{}` steps by {step} {unit}s and begins anew after {whole}: the last step is {last}; for every {step} {unit}s write `every`",
        cron.as_str()
    ))
}

/// A duration as one says it: `5m`, `1h 30m`.
pub fn duration_in_words(duration: SignedDuration) -> String {
    let (secs, micros) = (duration.as_secs(), duration.subsec_micros());
    let parts = [(secs / 86_400, "d"), (secs / 3_600 % 24, "h"), (secs / 60 % 60, "m"), (secs % 60, "s")];
    let mut words: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    match micros {
        0 => {}
        micros if micros % 1_000 == 0 => words.push(format!("{}ms", micros / 1_000)),
        micros => words.push(format!("{micros}us")),
    }
    if words.is_empty() { "0s".into() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(cron: &str) -> Timing {
        Timing::cron(cron, Some("Europe/Berlin")).unwrap()
    }

    /// The words are those of the times, however they are written.
    #[test]
    fn words_tell_the_times_that_an_expression_has() {
        let told = [
            ("30 2 * * *", "At 02:30"),
            ("15 30 2 * * *", "At 02:30:15"),
            ("0 9,17 * * *", "At 09:00 and 17:00"),
            ("0 */6 * * *", "At 00:00, 06:00, 12:00 and 18:00"),
            ("* * * * *", "Every minute"),
            ("* * * * * *", "Every second"),
            ("*/5 * * * *", "Every 5 minutes"),
            ("0,15,30,45 * * * *", "Every 15 minutes"),
            ("0/20 * * * * *", "Every 20 seconds"),
            // Steps that do not fill their range, or do not come out even.
            ("0-10/5 * * * *", "At minutes 0, 5 and 10 of every hour"),
            ("5/20 * * * *", "At minutes 5, 25 and 45 of every hour"),
            ("*/25 * * * *", "At minutes 0, 25 and 50 of every hour"),
            ("1-59/2 * * * *", "At minutes 1 to 59 in steps of 2 of every hour"),
            ("0-10/5 * * * * *", "At seconds 0, 5 and 10 of every minute"),
            ("30 0-30/10 * * * *", "At second 30 of minutes 0, 10, 20 and 30 of every hour"),
            ("0 0-20/2 * * *", "At minute 0 of hours 0 to 20 in steps of 2"),
            ("0 */2 * * *", "At minute 0 of every 2nd hour from 0"),
            ("*/5 9-17 * * *", "Every 5 minutes of hours 9-17"),
            ("*/5 0-4/2 * * *", "Every 5 minutes of hours 0, 2 and 4"),
            ("* 2 * * *", "Every minute of hour 2"),
            ("0/1 * 0 ? * * *", "Every second of hour 0"),
            ("0 0 1-11/5 * *", "At 00:00, on days 1, 6 and 11"),
            ("0 0 1 1-5/2 *", "At 00:00, on day 1, in January, March and May"),
            ("0 0 1 */2 *", "At 00:00, on day 1, in January, March, May, July, September and November"),
            ("0 0 * * 0-4/2", "At 00:00, on Sunday, Tuesday and Thursday"),
            ("0 0 0 1 1 ? 2026-2030/2", "At 00:00, on day 1, in January, in 2026, 2028 and 2030"),
            // Working days.
            ("0 0 LW * *", "At 00:00, on the last working day of the month"),
            ("0 0 L * *", "At 00:00, on the last day of the month"),
            ("0 0 15W * *", "At 00:00, on the working day nearest to day 15"),
            ("0 0 1,LW * *", "At 00:00, on day 1 and the last working day of the month"),
            ("0 0 * * 5#2", "At 00:00, on the 2nd Friday of the month"),
            ("0 0 * * 5L", "At 00:00, on the last Friday of the month"),
            ("0 0 * * 6,7", "At 00:00, on Sunday and Saturday"),
            ("0 0 ? * 2-6", "At 00:00, on Monday, Tuesday, Wednesday, Thursday and Friday"),
            ("0 0 13 * FRI", "At 00:00, on day 13 or Friday"),
            ("0 0 13 * +FRI", "At 00:00, on day 13, if it is also Friday"),
            ("@monthly", "At 00:00, on day 1"),
        ];
        let wrong = told.map(|(cron, words)| (cron, timing(cron).in_words(), format!("{words} (Europe/Berlin)")));
        let wrong: Vec<_> = wrong.iter().filter(|(_, said, words)| said != words).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_timing_is_said_in_plain_english() {
        assert_eq!(timing("30 2 * * *").in_words(), "At 02:30 (Europe/Berlin)");
        assert_eq!(timing("0 0 12 ? * 6L").in_words(), "At 12:00, on the last Friday of the month (Europe/Berlin)");
        assert_eq!(timing("0 0 * * 1-5").in_words().matches("Monday").count(), 1);
        let every = |secs| Timing::every(SignedDuration::from_secs(secs), None).unwrap().in_words();
        assert_eq!(every(5_400), "Every 1h 30m");
        assert_eq!(every(300), "Every 5m");
    }

    /// Seed 004 writes `0/1 * 0 ? * * *` for every minute; it is every second of one hour.
    #[test]
    fn what_is_probably_not_meant_is_said_with_when_it_fires_next() {
        let now = "2026-11-16T11:00:00Z".parse().unwrap();
        let warning = timing("0/1 * 0 ? * * *").warning(now).unwrap();
        assert!(warning.contains("3600 times") && warning.contains("2026-11-17 00:00:00 CET"), "{warning}");
        for (cron, part) in [
            ("* 2 * * *", "every minute of one hour"),
            ("0 0 13 * FRI", "on either"),
            ("*/7 * * * *", "the last step is 4"),
            ("0 */5 * * *", "the last step is 4"),
            ("* * 2 * * *", "bursts"),
        ] {
            let warning = timing(cron).warning(now);
            assert!(warning.as_ref().is_some_and(|warning| warning.contains(part)), "{cron}: {warning:?}");
        }
        for good in [
            "30 2 * * *",
            "*/5 * * * *",
            "0/15 * * * * *",
            "* * * * *",
            "* * * * * *",
            "* 9-17 * * *",
            "0 */6 * * *",
            "0 0 13 * +FRI",
            "0 0/5 * ? * * *",
            "@weekly",
            "0 9-17/3 * * *",
            "0 0 1 * *",
        ] {
            assert_eq!(timing(good).warning(now), None, "{good}");
        }
        assert_eq!(Timing::every(SignedDuration::from_mins(7), None).unwrap().warning(now), None);
        let past = timing("0 0 0 1 1 ? 2020").warning(now).unwrap();
        assert!(past.contains("has no time to come"), "{past}");
    }
}
