//! How is a noisy machine measured?
//!
//! The cases take turns in short slices, round after round, and each gets the median of its rounds. A ratio is taken
//! round by round too, between neighbours in time: a slow minute of the machine slows both alike, and a hiccup none.

use std::time::{Duration, Instant};

/// How long one case runs before the next has its turn.
pub const SLICE: Duration = Duration::from_millis(250);

/// The rates of one case, a round each.
#[derive(Debug, Default, Clone)]
pub struct Rates(Vec<f64>);

impl Rates {
    /// Adds a round: so many in so long.
    pub fn add(&mut self, count: u64, took: Duration) {
        self.0.push(count as f64 / took.as_secs_f64());
    }

    /// The median; 0 without a round.
    pub fn median(&self) -> f64 {
        median(&self.0)
    }

    /// How much of the other case's rate this one reaches: the median over the rounds.
    pub fn over(&self, other: &Rates) -> f64 {
        let ratios: Vec<f64> = self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect();
        median(&ratios)
    }
}

/// The middle value; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// How many rounds of so many cases fit into the time: at least three.
pub fn count(seconds: u64, cases: usize) -> usize {
    let round = SLICE.as_secs_f64() * cases as f64;
    ((seconds as f64 / round) as usize).max(3)
}

/// Runs `callers` tasks that each repeat `call` until the slice is over; answers how many events they stored (`call`
/// says how many each time) and how long it took until the last was done.
pub async fn slice<C, F>(callers: usize, call: C) -> anyhow::Result<(u64, Duration)>
where
    C: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<u64>> + Send,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while start.elapsed() < SLICE {
                    count += call(caller).await?;
                }
                anyhow::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    Ok((count, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_ratio_is_taken_between_neighbours_in_time() {
        let rates = |values: &[f64]| Rates(values.to_vec());
        let (ours, raw) = (rates(&[5.0, 50.0, 4.0]), rates(&[10.0, 100.0, 100.0]));
        assert_eq!(ours.over(&raw), 0.5);
    }
}
