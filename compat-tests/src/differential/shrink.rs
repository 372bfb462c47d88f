//! Makes a script that differs as small as it gets: drops steps as long as it differs.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::differential::compare::Difference;

/// How long shrinking may take; what is left then is small enough for people.
const PATIENCE: Duration = Duration::from_secs(180);

/// Zeller's ddmin over the steps' numbers; `differs` plays them.
///
/// # Errors
/// A script could not be played.
pub fn shrink(
    mut numbers: Vec<usize>,
    mut difference: Difference,
    mut differs: impl FnMut(&[usize]) -> Result<Option<Difference>>,
) -> Result<(Vec<usize>, Difference)> {
    let began = Instant::now();
    let mut size = numbers.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        let mut dropped = false;
        while start < numbers.len() && began.elapsed() < PATIENCE {
            let kept: Vec<usize> = numbers
                .iter()
                .take(start)
                .chain(numbers.iter().skip(start + size))
                .copied()
                .collect();
            match differs(&kept)? {
                Some(found) => {
                    (numbers, difference, dropped) = (kept, found, true);
                }
                None => start += size,
            }
        }
        if began.elapsed() >= PATIENCE || (size == 1 && !dropped) {
            return Ok((numbers, difference));
        }
        if size > 1 {
            size = size.div_ceil(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_difference_does_not_need_is_dropped() {
        let difference = |text: &str| Difference { batch: 0, text: text.to_owned() };
        let needed = [3, 17, 18];
        let (numbers, last) = shrink((0..40).collect(), difference("first"), |numbers| {
            let all = needed.iter().all(|number| numbers.contains(number));
            Ok(all.then(|| difference(&numbers.len().to_string())))
        })
        .expect("every script can be played");
        assert_eq!(numbers, needed);
        assert_eq!(last.text, "3");
    }
}
