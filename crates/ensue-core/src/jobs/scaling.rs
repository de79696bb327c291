//! Number of workers of a process that scales with its work.

/// Looks without waiting work before workers are taken away: a pause between two bursts costs none.
const CALM_LOOKS: u32 = 5;

/// The bounds between which the number of workers moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleBounds {
    /// With nothing to do.
    pub min: usize,
    /// However much there is to do.
    pub max: usize,
}

/// The number of workers, as of the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    bounds: ScaleBounds,
    workers: usize,
    calm: u32,
}

impl Scale {
    /// Begins with the fewest.
    pub fn new(bounds: ScaleBounds) -> Self {
        Self { bounds, workers: bounds.min, calm: 0 }
    }

    /// How many there are now.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The scale after a look that found so much work waiting. More waiting work than workers doubles them; after five
    /// looks in a row without any they are halved.
    pub fn after(self, waiting: u64) -> Self {
        let ScaleBounds { min, max } = self.bounds;
        match waiting {
            0 if self.calm + 1 >= CALM_LOOKS => Self { workers: (self.workers / 2).max(min), calm: 0, ..self },
            0 => Self { calm: self.calm + 1, ..self },
            waiting if waiting > self.workers as u64 => Self { workers: (self.workers * 2).min(max), calm: 0, ..self },
            _ => Self { calm: 0, ..self },
        }
    }

    /// A limit that belongs to the fewest workers, for as many as there are now.
    pub fn of(&self, limit: usize) -> usize {
        limit.saturating_mul(self.workers) / self.bounds.min.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_double_up_to_the_maximum_and_halve_down_to_the_minimum() {
        let mut scale = Scale::new(ScaleBounds { min: 3, max: 20 });
        let mut seen = Vec::new();
        for waiting in [3, 4, 100, 100, 100, 1, 0, 0, 0, 0] {
            scale = scale.after(waiting);
            seen.push(scale.workers());
        }
        assert_eq!(seen, [3, 6, 12, 20, 20, 20, 20, 20, 20, 20]);
        let mut later = Vec::new();
        for waiting in [0, 0, 0, 5, 0, 0, 0, 0, 0].into_iter().chain([0; 20]) {
            scale = scale.after(waiting);
            later.push(scale.workers());
        }
        assert_eq!(later[..4], [10; 4], "five looks in a row");
        assert_eq!((later[7], later[8], later[13], later[28]), (10, 5, 3, 3), "{later:?}");
        assert_eq!((scale.of(8), Scale { workers: 6, ..scale }.of(8)), (8, 16));
    }
}
