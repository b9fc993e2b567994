// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs of filters: from which inputs, and through which filters, an end gets its pictures.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::names::{FILTERS, FilterLink, GraphFilter, ObjectNames};
use crate::pts_expression::PtsExpression;
use crate::time_base::TimeBase;

/// Filters that make one picture from those of all their inputs: at each time, the newest ones (libavfilter's framesync).
const JOINING: [&str; 22] = [
    "overlay",
    "hstack",
    "vstack",
    "xstack",
    "blend",
    "alphamerge",
    "maskedmerge",
    "mergeplanes",
    "paletteuse",
    "premultiply",
    "unpremultiply",
    "displace",
    "lut2",
    "psnr",
    "ssim",
    "libvmaf",
    "xfade",
    "mix",
    "midequalizer",
    "threshold",
    "guided",
    "identity",
];

/// Those of them that make a picture whenever one of their inputs has a new one. The others make one for each picture of their
/// first input.
const JOINING_ANY: [&str; 4] = ["hstack", "vstack", "xstack", "mix"];

/// Filters that drop pictures, repeat or make some, or change their times: what was the newest picture behind them is not known
/// from the times in front of them. `fps` and `setpts` are known.
const CHANGING: [&str; 25] = [
    "decimate",
    "detelecine",
    "fieldmatch",
    "framerate",
    "framestep",
    "freezeframes",
    "loop",
    "minterpolate",
    "mpdecimate",
    "pullup",
    "random",
    "reverse",
    "select",
    "separatefields",
    "shuffleframes",
    "telecine",
    "thumbnail",
    "tile",
    "tinterlace",
    "tpad",
    "trim",
    "untile",
    "vidstabdetect",
    "weave",
    "zoompan",
];

/// Most filters on the ways to one end: a filter is on several ones if there is a `split`.
const MOST_STEPS: usize = 1024;

/// Two times of one moment in two units, each rounded, differ by less than this, nanoseconds.
const ROUNDING_NS: i64 = 1000;

/// Times of an input's pictures so far, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputTimes {
    /// Time of the first one.
    pub(crate) start_ns: i64,
    /// Time of the last one and its duration: as long as from the one before.
    pub(crate) end_ns: i64,
}

/// Way by which an end of a graph gets pictures from an input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Branch {
    /// Filter into which the program puts the pictures.
    pub(crate) input: u64,
    /// Unit of the times that pictures have there, and of those at the end.
    units: Option<[TimeBase; 2]>,
    /// Filters from the end on to the input, and what they do with times.
    steps: Vec<(u64, Step)>,
}

/// Work of a filter on the pictures of one of its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// Each picture keeps its time.
    Keeps,
    /// It joins each picture with those of its other inputs, for each new picture of any of them or of the first one.
    Joins { any: bool },
    /// There is a picture for each multiple of a unit (`fps`): the newest one that is nearer to it than to the next multiple.
    Slots(TimeBase),
    /// Times are moved or stretched (`setpts`), and then rounded to a unit.
    Moves(PtsExpression, TimeBase),
    /// The pictures are not known from their times, or each comes from one of several inputs.
    Unknown,
}

impl Step {
    /// Returns true if times are the same behind it.
    fn is_kept((_, step): &(u64, Step)) -> bool {
        matches!(step, Step::Keeps | Step::Joins { .. })
    }
}

impl Branch {
    /// Returns the time that a picture with the presentation time `pts` has at the input, nanoseconds. Where no unit is known,
    /// the number itself stands for it.
    pub(crate) fn time(&self, pts: i64) -> Option<i64> {
        self.units.map_or(Some(pts), |[unit, _]| unit.ns(pts))
    }

    /// Returns the time of a picture at the end, and the range of times around it, nanoseconds, which is one moment.
    pub(crate) fn moment(&self, pts: i64) -> Option<RangeInclusive<i64>> {
        let Some([_, unit]) = self.units else { return Some(pts..=pts) };
        let ns = unit.ns(pts)?;
        Some(ns.saturating_sub(ROUNDING_NS)..=ns.saturating_add(ROUNDING_NS))
    }

    /// Returns the time of the newest picture at the input of which a picture with time `pts` at the end can be made,
    /// nanoseconds; `None` if it is not known. `input` are the times of the pictures there.
    pub(crate) fn newest(&self, pts: i64, input: InputTimes) -> Option<i64> {
        let [_, unit] = self.units?;
        // The end's unit can be coarser than the input's.
        let tolerance = unit.half_ns().saturating_sub(ROUNDING_NS).max(ROUNDING_NS);
        self.back(unit.ns(pts)?.saturating_add(tolerance), &self.steps, input)
    }

    /// Returns the same as [`Branch::newest`] from the time `ns` of a picture of another branch, with which that of this one is
    /// joined; `None`, too, if one of them changes before that.
    pub(crate) fn newest_beside(&self, other: &Branch, ns: i64, input: InputTimes) -> Option<i64> {
        let shared = self.shared(other);
        let is_kept = other.steps[shared..].iter().all(Step::is_kept);
        is_kept.then(|| self.back(ns.saturating_add(ROUNDING_NS), &self.steps[shared..], input)).flatten()
    }

    /// True if the pictures of this branch become one with those of another one.
    pub(crate) fn is_joined_with(&self, other: &Branch) -> bool {
        if self.input == other.input {
            return false;
        }
        let meeting = self.shared(other).checked_sub(1).map(|last| self.steps[last].1);
        matches!(meeting, Some(Step::Joins { .. }))
    }

    /// True if the pictures at the end have the times at which they were made of this branch's and the other one's.
    pub(crate) fn keeps_times_behind(&self, other: &Branch) -> bool {
        self.steps[..self.shared(other)].iter().all(Step::is_kept)
    }

    /// True if each picture at the end has one of this branch's, and its time says which one.
    pub(crate) fn is_certain(&self) -> bool {
        // Behind `fps`, the time of a picture lies around the one at which it was made of its inputs.
        let is_around = |(_, step): &(u64, Step)| matches!(step, Step::Slots(_));
        let fps = self.steps.iter().position(is_around).unwrap_or(self.steps.len());
        let is_first_alone = |(_, step): &(u64, Step)| *step == Step::Joins { any: false };
        let is_unknown = |(_, step): &(u64, Step)| *step == Step::Unknown;
        !self.steps.iter().any(is_unknown) && !self.steps[fps..].iter().any(is_first_alone)
    }

    /// Returns the number of filters that both branches have, from the end on.
    fn shared(&self, other: &Branch) -> usize {
        self.steps.iter().zip(&other.steps).take_while(|(one, other)| one.0 == other.0).count()
    }

    /// Follows a time back through filters.
    fn back(&self, ns: i64, steps: &[(u64, Step)], input: InputTimes) -> Option<i64> {
        steps.iter().enumerate().try_fold(ns, |ns, (at, (_, step))| match step {
            Step::Keeps | Step::Joins { .. } => Some(ns),
            Step::Slots(unit) => {
                // Behind its last picture, `fps` fills the slots up to the one that is the nearest to the end.
                let is_first = steps[at + 1..].iter().all(|(_, step)| *step == Step::Keeps);
                let end = unit.last_before(input.end_ns.saturating_add(unit.half_ns() + 1)).saturating_sub(1);
                let slot = unit.last_before(ns).min(if is_first { end } else { i64::MAX });
                let slot = unit.ns(slot)?;
                Some(slot.saturating_add(unit.half_ns()).saturating_sub(ROUNDING_NS))
            }
            Step::Moves(expression, unit) => {
                // setpts cuts a stretched time to a multiple of the unit.
                let cut = if expression.is_stretching() { 2 * unit.half_ns() } else { 0 };
                let ns = ns.saturating_add(cut.saturating_sub(ROUNDING_NS).max(0));
                Some(expression.before(ns, input.start_ns))
            }
            Step::Unknown => None,
        })
    }
}

/// Graphs of a recording.
#[derive(Debug)]
pub(crate) struct FilterGraphs<'a> {
    filters: HashMap<(i32, u64), &'a GraphFilter>,
    /// Links to each filter from other ones.
    inputs: HashMap<(i32, u64), Vec<FilterLink>>,
}

impl FilterGraphs<'_> {
    pub(crate) fn new(names: &ObjectNames) -> FilterGraphs<'_> {
        let filters: HashMap<_, _> = names.filters().collect();
        let mut inputs: HashMap<_, Vec<_>> = HashMap::new();
        for ((process, from), filter) in &filters {
            for (to, unit) in &filter.outputs {
                inputs.entry((*process, *to)).or_default().push((*from, *unit));
            }
        }
        inputs.values_mut().for_each(|links| links.sort_unstable_by_key(|(from, _)| *from));
        FilterGraphs { filters, inputs }
    }

    /// Returns the branches to the end `end` of a graph: one for each input that leads to it.
    pub(crate) fn branches(&self, process: i32, end: u64) -> Vec<Branch> {
        let inputs = |filter| self.inputs.get(&(process, filter)).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<Branch> = Vec::new();
        // Links to go back, with the filters behind them.
        let mut left: Vec<_> = inputs(end).iter().take(1).map(|link| (*link, Vec::new())).collect();
        let end_unit = inputs(end).first().and_then(|(_, unit)| *unit);
        for _ in 0..MOST_STEPS {
            let Some(((from, unit), mut steps)) = left.pop() else { break };
            let Some(filter) = self.filters.get(&(process, from)).filter(|_| steps.len() <= FILTERS) else {
                continue;
            };
            let before = inputs(from);
            if before.is_empty() {
                if found.iter().all(|branch| branch.input != from) {
                    let units = unit.zip(end_unit).map(|(input, end)| [input, end]);
                    found.push(Branch { input: from, units, steps });
                }
                continue;
            }
            let step = match (filter.name.as_str(), unit) {
                ("fps", Some(unit)) => Step::Slots(unit),
                ("setpts", Some(unit)) => {
                    PtsExpression::parse(&filter.option).map_or(Step::Unknown, |it| Step::Moves(it, unit))
                }
                (name, _) if JOINING.contains(&name) => Step::Joins { any: JOINING_ANY.contains(&name) },
                (name, _)
                    if before.len() > 1 || ["fps", "setpts"].contains(&name) || CHANGING.contains(&name) =>
                {
                    Step::Unknown
                }
                _ => Step::Keeps,
            };
            steps.push((from, step));
            left.extend(before.iter().rev().map(|link| (*link, steps.clone())));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address and name of a filter, and its inputs with the denominators of their units.
    type AddedFilter<'a> = (u64, &'a str, &'a [(u64, u64)]);

    /// Adds the filters of a graph.
    fn graph(filters: &[AddedFilter<'_>]) -> ObjectNames {
        let mut names = ObjectNames::default();
        for (place, (address, name, _)) in filters.iter().enumerate() {
            names.add_filter(1, *address, name, 99, place as u64);
        }
        for (address, _, inputs) in filters {
            for (from, denominator) in *inputs {
                names.add_filter_output(1, *from, *address, [0, denominator << 32 | 1]);
            }
        }
        names
    }

    const ENDLESS: InputTimes = InputTimes { start_ns: 0, end_ns: i64::MAX };

    fn branches(names: &ObjectNames, end: u64) -> Vec<Branch> {
        FilterGraphs::new(names).branches(1, end)
    }

    fn inputs(branches: &[Branch]) -> Vec<u64> {
        branches.iter().map(|branch| branch.input).collect()
    }

    #[test]
    fn each_end_has_the_inputs_that_lead_to_it() {
        let names = graph(&[
            (1, "buffer", &[]),
            (2, "buffer", &[]),
            (3, "split", &[(1, 25)]),
            (4, "overlay", &[(3, 25), (2, 10)]),
            (5, "buffersink", &[(4, 50)]),
            (6, "buffersink", &[(3, 25)]),
        ]);
        let joined = branches(&names, 5);
        assert_eq!(inputs(&joined), [2, 1]);
        assert!(joined[0].is_joined_with(&joined[1]) && !joined[0].is_joined_with(&joined[0]));
        assert_eq!(inputs(&branches(&names, 6)), [1]);
        assert_eq!(branches(&names, 7), []);
        // 1.02 s at the end, and the tenth picture of 0.1 s.
        assert_eq!(joined[0].newest(51, ENDLESS).map(|ns| ns / 100_000_000), Some(10));
        assert_eq!(joined[1].time(25), Some(1_000_000_000));
    }

    #[test]
    fn a_graph_at_the_address_of_another_one_has_its_own_filters_alone() {
        let mut names = graph(&[(1, "buffer", &[]), (2, "buffer", &[]), (3, "hstack", &[(1, 25), (2, 25)])]);
        for (place, (address, name)) in [(1, "buffer"), (3, "buffersink")].into_iter().enumerate() {
            names.add_filter(1, address, name, 99, place as u64);
        }
        names.add_filter_output(1, 1, 3, [0, 25 << 32 | 1]);
        assert_eq!(inputs(&branches(&names, 3)), [1]);
    }

    #[test]
    fn a_picture_of_fps_is_the_last_one_that_is_nearest_to_its_time() {
        let names = graph(&[
            (1, "buffer", &[]),
            (2, "buffer", &[]),
            (3, "fps", &[(1, 25)]),
            (4, "hstack", &[(3, 10), (2, 25)]),
            (5, "buffersink", &[(4, 50)]),
        ]);
        let found = branches(&names, 5);
        assert_eq!(inputs(&found), [2, 1]);
        let (fps, beside) = (&found[1], &found[0]);
        // At 0.1 s: pictures of 1/25 s below 0.15 s.
        let newest = fps.newest(5, ENDLESS).unwrap();
        assert!((120_000_000..150_000_000).contains(&newest), "{newest}");
        // Still at 0.16 s, the time of a picture of the other input.
        assert_eq!(fps.newest_beside(beside, 160_000_000, ENDLESS), Some(newest));
        // The input ends at 0.16 s, and fps fills two slots: at 0.1 s, the last of them is still there for the other input.
        let ended = InputTimes { end_ns: 160_000_000, ..ENDLESS };
        assert_eq!(fps.newest(50, ended), Some(newest));
    }

    #[test]
    fn a_moved_or_stretched_time_is_found_in_front_of_setpts() {
        let mut names =
            graph(&[(1, "buffer", &[]), (2, "setpts", &[(1, 1000)]), (3, "buffersink", &[(2, 1000)])]);
        let newest = |names: &ObjectNames| {
            branches(names, 3)[0].newest(500, InputTimes { start_ns: 300_000_000, ..ENDLESS })
        };
        assert_eq!(newest(&names), None);
        names.set_filter_option(1, 2, b"PTS-STARTPTS\0");
        assert_eq!(newest(&names).map(|ns| ns / 1_000_000), Some(800));
        // 0.5005 s, of which 0.5 s is left.
        names.set_filter_option(1, 2, b"PTS*0.5\0");
        assert_eq!(newest(&names).map(|ns| ns / 1_000_000), Some(1002));
        // The end of an expression is missing.
        names.set_filter_option(1, 2, b"PTS*0.5");
        assert_eq!(newest(&names), None);
    }

    #[test]
    fn what_is_not_known_from_times_is_not_guessed() {
        let names = graph(&[
            (1, "buffer", &[]),
            (2, "buffer", &[]),
            (3, "select", &[(2, 25)]),
            (4, "concat", &[(1, 25), (3, 25)]),
            (5, "buffersink", &[(4, 25)]),
            (6, "overlay", &[(1, 25), (3, 25)]),
            (7, "setpts", &[(6, 25)]),
            (8, "buffersink", &[(7, 25)]),
        ]);
        let chosen = branches(&names, 5);
        assert!(!chosen[0].is_joined_with(&chosen[1]) && !chosen[0].is_certain());
        assert_eq!(chosen[0].newest(25, ENDLESS), None);
        // Behind the overlay, the times are others; in front of it, the first input's are the overlay's.
        let joined = branches(&names, 8);
        assert_eq!(joined[0].newest(25, ENDLESS), None);
        assert_eq!(joined[0].newest_beside(&joined[1], 1_000_000_000, ENDLESS), None);
        assert_eq!(joined[1].newest_beside(&joined[0], 1_000_000_000, ENDLESS), None);
    }

    /// A hostile program: filters that lead to themselves, and 2^32 ways.
    #[test]
    fn the_search_for_branches_ends() {
        let mut names = graph(&[(1, "null", &[(1, 25)]), (2, "buffersink", &[(1, 25)])]);
        assert_eq!(branches(&names, 2), []);
        names.add_filter(1, 10, "buffer", 99, 1);
        for address in 10..42 {
            names.add_filter(1, address + 1, "hstack", 99, address);
            for _ in 0..2 {
                names.add_filter_output(1, address, address + 1, [0, 25 << 32 | 1]);
            }
        }
        assert!(branches(&names, 42).len() <= 1);
    }
}
