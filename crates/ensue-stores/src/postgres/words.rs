//! Which bounds and words of the core does the SQL have in it?
//!
//! What is decided in the core is not written a second time in SQL: templates have a placeholder for it.

use ensue_core::handling::retry::{ATTEMPTS_LIMIT, DELAY_MAX};
use ensue_core::jobs::JobState;
use ensue_core::jobs::job::{CLAIM_HANDLERS_MAX, JOB_ATTEMPTS_MAX, JOBS_MAX, UNIQUE_KEY_BYTES_MAX, WORKER_BYTES_MAX};
use ensue_core::jobs::lifecycle::{Arrow, Input, after};
use ensue_core::jobs::notices::{RULE_LIFTED, RULE_SET};
use ensue_core::positions::delivery::LINE_BYTES_MAX;
use ensue_core::rules::REASON_BYTES_MAX;
use ensue_core::tasks::{CALLED_OFF, NAME_BYTES_MAX, TASK_PRIORITY};

/// A template with these words in it.
pub(super) fn put_in(template: &str) -> String {
    let mut text = template.to_owned();
    if !text.contains('{') {
        return text;
    }
    let bounds = [
        ("{unique_key_bytes_max}", UNIQUE_KEY_BYTES_MAX as u128),
        ("{worker_bytes_max}", WORKER_BYTES_MAX as u128),
        ("{reason_bytes_max}", REASON_BYTES_MAX as u128),
        ("{claim_handlers_max}", CLAIM_HANDLERS_MAX as u128),
        ("{jobs_max}", JOBS_MAX as u128),
        ("{line_bytes_max}", LINE_BYTES_MAX as u128),
        ("{job_attempts_max}", u128::from(JOB_ATTEMPTS_MAX)),
        ("{attempts_limit}", u128::from(ATTEMPTS_LIMIT)),
        ("{delay_max_us}", DELAY_MAX.as_micros()),
        ("{name_bytes_max}", NAME_BYTES_MAX as u128),
        ("{task_priority}", u128::from(TASK_PRIORITY)),
    ];
    for (placeholder, bound) in bounds {
        text = text.replace(placeholder, &bound.to_string());
    }
    text = text.replace("{rule_set}", RULE_SET).replace("{rule_lifted}", RULE_LIFTED);
    text = text.replace("{called_off}", CALLED_OFF);
    if text.contains("{states}") {
        text = text.replace("{states}", &array(JobState::ALL.map(JobState::as_str)));
        for (name, input) in [("cancel", Input::Cancel), ("retry", Input::Retry), ("skip", Input::Skip)] {
            text =
                text.replace(&format!("{{{name}_to}}"), &array(JobState::ALL.map(|state| word(after(state, input)))));
            text =
                text.replace(&format!("{{{name}_why}}"), &array(JobState::ALL.map(|state| why(after(state, input)))));
        }
    }
    text
}

/// An array of texts; an empty one is null.
fn array<const N: usize>(texts: [&str; N]) -> String {
    let element = |text: &str| match text {
        "" => "NULL".to_owned(),
        text => format!("'{}'", text.replace('\'', "''")),
    };
    format!("ARRAY[{}]::text[]", texts.map(element).join(", "))
}

/// What `jobs_steer` calls an arrow.
pub(super) fn word(arrow: Arrow) -> &'static str {
    match arrow {
        Arrow::To(state) => state.as_str(),
        Arrow::Signal => "signal",
        Arrow::LetGo => "let go",
        Arrow::Refused(_) => "refused",
    }
}

fn why(arrow: Arrow) -> &'static str {
    match arrow {
        Arrow::Refused(why) => why,
        Arrow::To(_) | Arrow::Signal | Arrow::LetGo => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arrows_of_a_verb_are_those_of_the_core() {
        let text = put_in("{states} {cancel_to} {skip_why} {rule_set} {jobs_max}");
        assert!(text.starts_with("ARRAY['scheduled', 'available', 'running',"), "{text}");
        assert!(text.contains("'cancelled', 'cancelled', 'signal',"), "{text}");
        assert!(text.contains("NULL, 'it is over: nothing is left to skip', NULL,"), "{text}");
        assert!(text.ends_with("ensue.rule.set 1000"), "{text}");
    }
}
