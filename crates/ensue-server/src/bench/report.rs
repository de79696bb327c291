//! How are figures shown?

use super::rounds::Rates;
use crate::cli::output;
use serde::Serialize;

/// What a ratio (or, without one, a value) should be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// One measured thing.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The median over the rounds.
    pub value: f64,
    /// The unit of the value.
    pub unit: &'static str,
    /// The value over the raw one of the same run.
    pub ratio: Option<f64>,
    /// What the ratio (or, without one, the value) should be.
    pub target: Option<Target>,
    /// Is it so?
    pub reached: Option<bool>,
}

/// The figures of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was measured, and how.
    pub about: String,
    /// In the order of measuring.
    pub figures: Vec<Figure>,
}

impl Report {
    /// A report without figures yet.
    pub fn new(about: impl Into<String>) -> Self {
        Self { about: about.into(), figures: Vec::new() }
    }

    /// A raw limit: what others are compared to.
    pub fn raw(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit, ratio: None, target: None, reached: None });
    }

    /// A figure as a ratio to the raw limit.
    pub fn against(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        raw: f64,
        target: Option<Target>,
    ) {
        self.with_ratio(name.into(), value, unit, value / raw, target);
    }

    /// The rates of a raw limit.
    pub fn raw_rates(&mut self, name: impl Into<String>, rates: &Rates, unit: &'static str) {
        self.raw(name, rates.median(), unit);
    }

    /// Rates as a ratio to those of the raw limit.
    pub fn rates(
        &mut self,
        name: impl Into<String>,
        rates: &Rates,
        unit: &'static str,
        raw: &Rates,
        target: Option<Target>,
    ) {
        self.with_ratio(name.into(), rates.median(), unit, rates.over(raw), target);
    }

    fn with_ratio(&mut self, name: String, value: f64, unit: &'static str, ratio: f64, target: Option<Target>) {
        let reached = target.map(|target| target.holds(ratio));
        self.figures.push(Figure { name, value, unit, ratio: Some(ratio), target, reached });
    }

    /// A figure with an absolute target.
    pub fn absolute(&mut self, name: impl Into<String>, value: f64, unit: &'static str, target: Target) {
        let reached = Some(target.holds(value));
        self.figures.push(Figure { name: name.into(), value, unit, ratio: None, target: Some(target), reached });
    }

    /// Prints a table, or with `json` an object.
    pub fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return output::json(self);
        }
        let rows = self.figures.iter().map(|figure| {
            [
                figure.name.clone(),
                format!("{} {}", number(figure.value), figure.unit),
                figure.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
                figure.target.map_or(String::new(), Target::show),
                match figure.reached {
                    Some(true) => "yes".into(),
                    Some(false) => "no".into(),
                    None => String::new(),
                },
            ]
        });
        output::line(&self.about)?;
        output::block(output::table(["measured", "median", "of raw", "target", "reached"], rows))
    }
}

impl Target {
    fn holds(self, value: f64) -> bool {
        match self {
            Target::AtLeast(bound) => value >= bound,
            Target::AtMost(bound) => value <= bound,
        }
    }

    fn show(self) -> String {
        match self {
            Target::AtLeast(bound) => format!("≥ {bound}"),
            Target::AtMost(bound) => format!("≤ {bound}"),
        }
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 { output::grouped(value.round() as u64) } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_by_its_ratio_or_else_by_its_value() {
        let mut report = Report::new("trial");
        report.raw("raw", 200.0, "events/s");
        report.against("half", 100.0, "events/s", 200.0, Some(Target::AtLeast(0.5)));
        report.against("less", 99.0, "events/s", 200.0, Some(Target::AtLeast(0.5)));
        report.absolute("memory", 41.0, "MB", Target::AtMost(40.0));
        let reached: Vec<_> = report.figures.iter().map(|figure| figure.reached).collect();
        assert_eq!(reached, [None, Some(true), Some(false), Some(false)]);
    }
}
