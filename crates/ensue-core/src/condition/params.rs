//! Check of params against a condition.
//!
//! A part that reads the params and nothing else has the same value for every event. One that fails fails always, so it is refused
//! with the subscription. All parts are evaluated within one budget. What is behind a CASE, or behind a part that decides an AND
//! or an OR without it, may never be asked for, and is left alone.

use super::eval::Evaluator;
use super::expr::{Column, Expr};
use super::failure::Failure;
use super::meter::Meter;
use super::row::{Row, SubscriptionView};
use super::value::Value;
use crate::error::Invalid;
use crate::json::Json;
use uuid::Uuid;

/// Refuses params on which a part of the condition can only fail; names the param.
pub(super) fn check<'e>(parts: impl IntoIterator<Item = &'e Expr>, params: &Json) -> Result<(), Invalid> {
    let view = SubscriptionView::new(Uuid::nil(), "", params);
    let row = Row { event: None, subscription: Some(&view) };
    let failed = |(part, failure): (&Expr, Failure)| {
        let whose = param_of(part).map_or_else(String::new, |param| format!("`{param}`: "));
        Invalid::new("params", format!("does not go with the condition: {whose}{failure}"))
    };
    in_order(parts, false, row, &Meter::new()).map_err(failed)
}

/// The parts of an AND, or of an OR, up to the one that decides it.
fn in_order<'e>(
    parts: impl IntoIterator<Item = &'e Expr>,
    decided_by: bool,
    row: Row<'_, '_, '_>,
    meter: &Meter,
) -> Result<(), (&'e Expr, Failure)> {
    for part in parts {
        if reads_params_alone(part) {
            match evaluate(part, row, meter) {
                Ok(Some(truth)) if truth == decided_by => return Ok(()),
                Ok(_) => {}
                Err(failure) => return Err(least(part, failure, row, meter)),
            }
        } else {
            look_into(part, row, meter)?;
        }
    }
    Ok(())
}

/// Looks at what is evaluated for every event that comes to this part.
fn look_into<'e>(part: &'e Expr, row: Row<'_, '_, '_>, meter: &Meter) -> Result<(), (&'e Expr, Failure)> {
    match part {
        Expr::And(parts) => return in_order(parts, false, row, meter),
        Expr::Or(parts) => return in_order(parts, true, row, meter),
        // Which of their parts are asked for, the event decides.
        Expr::Case { .. } | Expr::CaseOf { .. } | Expr::Coalesce(_) => return Ok(()),
        // The first that is found ends it; so does NULL.
        Expr::In { .. } | Expr::Between { .. } => return Ok(()),
        _ => {}
    }
    let mut parts = Vec::new();
    part.for_each_part(&mut |part| parts.push(part));
    for part in parts {
        if reads_params_alone(part) {
            evaluate(part, row, meter).map_err(|failure| least(part, failure, row, meter))?;
        } else {
            look_into(part, row, meter)?;
        }
    }
    Ok(())
}

/// Evaluates a part with the steps that are left; the value counts only if it is a boolean.
fn evaluate(part: &Expr, row: Row<'_, '_, '_>, meter: &Meter) -> Result<Option<bool>, Failure> {
    let evaluator = Evaluator::within(row, meter.left());
    let truth = evaluator.truth(part);
    meter.charge_all_of(&evaluator.meter);
    truth
}

/// The innermost part that fails, so that the right param is named.
fn least<'e>(part: &'e Expr, failure: Failure, row: Row<'_, '_, '_>, meter: &Meter) -> (&'e Expr, Failure) {
    let mut inner = None;
    part.for_each_part(&mut |part| {
        if inner.is_none()
            && !meter.is_exhausted()
            && let Err(failure) = evaluate(part, row, meter)
        {
            inner = Some((part, failure));
        }
    });
    match inner {
        Some((part, failure)) => least(part, failure, row, meter),
        None => (part, failure),
    }
}

/// Does it read the params, and nothing else?
fn reads_params_alone(part: &Expr) -> bool {
    let (mut params, mut others) = (false, false);
    look_for_columns(part, &mut |column| match column {
        Column::Params => params = true,
        _ => others = true,
    });
    params && !others
}

fn look_for_columns(part: &Expr, look: &mut dyn FnMut(Column)) {
    if let Expr::Column(column) = part {
        look(*column);
    }
    part.for_each_part(&mut |part| look_for_columns(part, look));
}

/// The first member of the params that it reads.
fn param_of(part: &Expr) -> Option<String> {
    if let Expr::Member { value, key, .. } = part
        && matches!(**value, Expr::Column(Column::Params))
        && let Expr::Constant(Value::Text(name)) = &**key
    {
        return Some(name.to_string());
    }
    let mut found = None;
    part.for_each_part(&mut |part| {
        if found.is_none() {
            found = param_of(part);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::super::Condition;
    use crate::json::Json;

    fn told(condition: &str, params: &str) -> Option<String> {
        let params = Json::parse("params", params).unwrap();
        Condition::parse(condition).unwrap().check_params(&params).err().map(|invalid| invalid.to_string())
    }

    #[test]
    fn a_param_that_can_never_be_cast_is_named() {
        for condition in [
            "(s.params->>'n')::int > 5",
            "(e.payload->>'total')::int > (s.params->>'n')::int",
            "e.topic = 'a' AND NOT (s.params->'n')::int = 3",
            "e.topic = 'a' OR e.seq > (s.params->>'n')::int + 1",
            "s.params @> jsonb_build_object('topic', e.topic) AND abs((s.params->>'n')::numeric) < 3",
        ] {
            let told = told(condition, r#"{"n": "abc", "m": 1}"#).unwrap_or_default();
            assert!(told.starts_with("`params` does not go") && told.contains("`n`: "), "{condition}: {told}");
            assert_eq!(super::tests::told(condition, r#"{"n": 7}"#), None, "{condition}");
            assert_eq!(super::tests::told(condition, "{}"), None, "NULL is no failure: {condition}");
        }
    }

    #[test]
    fn what_may_never_be_asked_for_is_left_alone() {
        for condition in [
            "CASE WHEN jsonb_typeof(s.params->'n') = 'number' THEN (s.params->>'n')::int > 5 ELSE true END",
            "jsonb_typeof(s.params->'n') <> 'number' OR (s.params->>'n')::int > 5",
            "jsonb_typeof(s.params->'n') = 'number' AND (s.params->>'n')::int > e.seq",
            "jsonb_typeof(s.params->'n') = 'string' OR e.seq > (s.params->>'n')::int",
            "COALESCE(e.seq, (s.params->>'n')::int) > 5",
            "CASE e.topic WHEN 'a' THEN (s.params->>'n')::int > 5 END",
            "e.payload->>'n' = s.params->>'n'",
            "(e.payload->>'n')::int = 5",
        ] {
            assert_eq!(told(condition, r#"{"n": "abc"}"#), None, "{condition}");
        }
    }
}
