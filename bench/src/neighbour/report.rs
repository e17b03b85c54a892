//! What is made of the turns.
//!
//! The p99.9 of a case is that of its turns, the median of those of a round. A turn's
//! growth is its p99.9 less that of another case in the same pass, a second or two away;
//! a round's is the median of these. (All turns put together have a p99.9, too, which is
//! shown: it is mostly the machine's worst tenth of a second.)
//!
//! Where the machine's own p99.9 is longer than a budget, what the neighbour does is
//! hidden in it, and the growth says little. The p99.5 is what a message waits that finds
//! the queue taken, and the machine's tail is beyond it: its growth is shown beside.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Beside, Case, Pass, Report, Round, Row};
use crate::ratio::{self, Ratio, Target};
use crate::stats::{Spread, Times};
use crate::table;

type Of = fn(&Pass) -> f64;

/// What is found of a case, round by round.
type Rounds<'r> = &'r dyn Fn(&Row) -> Vec<f64>;

const P50: Of = |turn| turn.summary.p50 as f64;
const STRUCK: Of = |turn| turn.struck as f64;
const P999: Of = |turn| turn.summary.p999 as f64;

pub(super) fn report(rows: &[Row]) -> Report {
    let lines: Vec<Vec<String>> = rows.iter().map(|row| line(row, rows)).collect();
    let header = [
        "TIER",
        "NEIGHBOUR",
        "BUDGET us",
        "P50 us",
        "P50 x",
        "P99.5 us",
        "GROWN",
        "BUDGETS",
        "P99.9 us",
        "MIN",
        "MAX",
        "ALL",
        "GROWN",
        "BUDGETS",
        "CONTROL",
        "ASKED",
        "LOST",
        "STOPPED",
        "QUEUED",
    ];
    let ratios = ratios(rows);
    let text = format!(
        "A victim asked in turn, beside a neighbour that spends its budget 1,000 times a \
         second on the\nsame receive queue; the control's handler returns at once. P50 x: over \
         the victim alone. Tails are\nof turns of 0.1 s, medians of the rounds (ALL: of all turns \
         together). GROWN: what they are more than\nalone, in us; BUDGETS: the same in budgets of \
         the neighbour; CONTROL: more than beside the control,\nin budgets. All are medians of \
         differences within a pass. The p99.5 is what a message waits that finds\nthe queue \
         taken; the p99.9 has the machine's own tail in it. LOST: answers that did not come, and \
         what\nthe victim's path has received and not answered. QUEUED: messages of the neighbour's \
         that the worker ran,\nin the user tier, which nobody waits for.\n\n{}\n{}",
        table::render(&header, 2, &lines),
        ratio::render(&ratios)
    );
    let documents: Vec<Value> = rows.iter().map(|row| to_json(row, rows)).collect();
    Report {
        document: json!({ "rows": documents, "ratios": ratio::to_json(&ratios) }),
        text,
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

impl Row {
    /// A quantity of each round: the median of its turns.
    fn each(&self, of: Of) -> Option<Spread> {
        let rounds = self.rounds.iter();
        let whole = |round: &Round| {
            let turns = round.turns.iter().filter(|turn| turn.is_whole());
            median(turns.map(of))
        };
        Spread::of(rounds.filter_map(whole))
    }

    /// Another case of the same tier, in the same turns.
    fn other<'r>(&self, rows: &'r [Self], beside: Beside) -> &'r Self {
        let tier = self.case.tier;
        let found = rows.iter().find(|row| row.case == Case { tier, beside });
        found.expect("it is measured in each tier")
    }

    /// What becomes of each turn and the one beside it, round by round.
    fn against(&self, other: &Self, of: impl Fn(&Pass, &Pass) -> f64) -> Vec<f64> {
        let rounds = self.rounds.iter().zip(&other.rounds);
        let each = |(one, other): (&Round, &Round)| {
            let turns = one.turns.iter().zip(&other.turns);
            let whole = turns.filter(|(one, other)| one.is_whole() && other.is_whole());
            median(whole.map(|(one, other)| of(one, other)))
        };
        rounds.filter_map(each).collect()
    }

    /// The p50 over that of the victim alone.
    fn slower(&self, rows: &[Self]) -> Vec<f64> {
        let alone = self.other(rows, Beside::Nobody);
        self.against(alone, |one, alone| P50(one) / P50(alone))
    }

    /// What a quantity is more than beside somebody else, in ns.
    fn grown(&self, rows: &[Self], of: Of, beside: Beside) -> Vec<f64> {
        let other = self.other(rows, beside);
        self.against(other, |one, other| of(one) - of(other))
    }

    /// The same in budgets.
    fn budgets(&self, rows: &[Self], of: Of, beside: Beside) -> Vec<f64> {
        let budget = self.case.budget().map(|budget| f64::from(budget) * 1e3);
        let grown = self.grown(rows, of, beside).into_iter();
        grown
            .filter_map(|grown| budget.map(|budget| grown / budget))
            .collect()
    }

    /// The p99.9 of all turns of all rounds together.
    fn together(&self) -> u64 {
        let mut all = Times::new();
        for round in &self.rounds {
            all.add(&round.all).expect("all times have the same bounds");
        }
        all.summary().p999
    }

    /// Messages of the neighbour's that the worker ran.
    fn queued(&self) -> u64 {
        self.queued.iter().map(|(_, count)| count).sum()
    }

    /// Answers that did not come, and messages that its path has not answered.
    fn losses(&self) -> [u64; 2] {
        [self.lost, self.received - self.replied]
    }
}

impl Pass {
    fn is_whole(&self) -> bool {
        self.summary.n > 0
    }
}

fn line(row: &Row, rows: &[Row]) -> Vec<String> {
    let us = |value: f64| table::digits(value / 1e3);
    let each =
        |of, part: fn(Spread) -> f64| row.each(of).map_or_else(String::new, |it| us(part(it)));
    let middle = |spread: Spread| spread.median;
    let disturbed = |values: Vec<f64>, show: fn(f64) -> String| {
        let found = median(values).filter(|_| row.case.beside != Beside::Nobody);
        found.map_or_else(String::new, show)
    };
    let budget = row.case.budget().map(|budget| budget.to_string());
    let [lost, unanswered] = row.losses();
    vec![
        row.case.tier.to_owned(),
        row.case.name().to_owned(),
        budget.unwrap_or_default(),
        each(P50, middle),
        disturbed(row.slower(rows), table::digits),
        each(STRUCK, middle),
        disturbed(row.grown(rows, STRUCK, Beside::Nobody), us_of),
        disturbed(row.budgets(rows, STRUCK, Beside::Nobody), table::digits),
        each(P999, middle),
        each(P999, |spread| spread.min),
        each(P999, |spread| spread.max),
        us(row.together() as f64),
        disturbed(row.grown(rows, P999, Beside::Nobody), us_of),
        disturbed(row.budgets(rows, P999, Beside::Nobody), table::digits),
        disturbed(row.budgets(rows, P999, Beside::Control), table::digits),
        (row.answered + row.lost).to_string(),
        format!("{lost} + {unanswered}"),
        row.case
            .budget()
            .map_or_else(String::new, |_| row.stopped.to_string()),
        row.case
            .budget()
            .map_or_else(String::new, |_| row.queued().to_string()),
    ]
}

fn us_of(ns: f64) -> String {
    table::digits(ns / 1e3)
}

fn to_json(row: &Row, rows: &[Row]) -> Value {
    let spread = |values| Spread::of(values).map(Spread::to_json);
    let each = |of| row.each(of).map(Spread::to_json);
    let n = row.rounds.iter().map(|round| round.all.summary().n);
    let [lost, unanswered] = row.losses();
    json!({
        "tier": row.case.tier,
        "neighbour": row.case.name(),
        "budget_ns": row.case.budget().map(|budget| u64::from(budget) * 1000),
        "n": n.sum::<u64>(),
        "p50_ns": each(P50),
        "p995_ns": each(STRUCK),
        "p999_ns": each(P999),
        "p999_all_ns": row.together(),
        "p50_over_alone": spread(row.slower(rows)),
        "p995_grown_ns": spread(row.grown(rows, STRUCK, Beside::Nobody)),
        "p999_grown_ns": spread(row.grown(rows, P999, Beside::Nobody)),
        "p999_over_control_ns": spread(row.grown(rows, P999, Beside::Control)),
        "p999_growth_in_budgets": spread(row.budgets(rows, P999, Beside::Nobody)),
        "asked": row.answered + row.lost,
        "lost": lost,
        "received_and_not_answered": unanswered,
        "neighbour_sent": row.sent,
        "neighbour_stopped": row.stopped,
        "neighbour_queued": row.queued.iter().cloned().collect::<BTreeMap<_, _>>(),
    })
}

/// The worst neighbour of the kernel tier with each budget, round by round; what the
/// user tier does is recorded.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let worst = |tier: &str, budget: u32, of: Rounds<'_>| {
        let picked = rows.iter();
        let picked =
            picked.filter(|row| row.case.tier == tier && row.case.budget() == Some(budget));
        let each: Vec<Vec<f64>> = picked.map(of).collect();
        let rounds = each.iter().map(Vec::len).min().unwrap_or(0);
        let of_round = |round| each.iter().map(|of| of[round]).fold(f64::MIN, f64::max);
        (0..rounds).map(of_round).collect::<Vec<f64>>()
    };
    let slower = |row: &Row| row.slower(rows);
    let alone = |row: &Row| row.budgets(rows, P999, Beside::Nobody);
    let control = |row: &Row| row.budgets(rows, P999, Beside::Control);
    let struck = |row: &Row| row.budgets(rows, STRUCK, Beside::Nobody);
    let us = |of: Of| {
        move |row: &Row| {
            let grown = row.grown(rows, of, Beside::Nobody).into_iter();
            grown.map(|ns| ns / 1e3).collect::<Vec<f64>>()
        }
    };
    let (tail, struck_us) = (us(P999), us(STRUCK));
    let losses = rows.iter().map(|row| row.losses().iter().sum::<u64>());
    let lost = [losses.sum::<u64>() as f64];
    let (kept, none) = (Target::AtMost(1.10), Target::Recorded);
    let growth = "kernel_p999_growth_in_budgets_50us";
    let over_control = "kernel_p999_over_control_in_budgets_50us";
    let growth_struck = "kernel_p995_growth_in_budgets_50us";
    let quantities: [(&str, Target, &str, u32, Rounds<'_>); 12] = [
        ("kernel_p50_over_alone_50us", kept, "kernel", 50, &slower),
        ("kernel_p50_over_alone_10us", kept, "kernel", 10, &slower),
        (growth, kept, "kernel", 50, &alone),
        (over_control, none, "kernel", 50, &control),
        (growth_struck, none, "kernel", 50, &struck),
        ("kernel_p999_growth_us_50us", none, "kernel", 50, &tail),
        ("kernel_p999_growth_us_10us", none, "kernel", 10, &tail),
        ("kernel_p995_growth_us_50us", none, "kernel", 50, &struck_us),
        ("kernel_p995_growth_us_10us", none, "kernel", 10, &struck_us),
        ("user_p50_over_alone_50us", none, "user", 50, &slower),
        ("user_p995_growth_us_50us", none, "user", 50, &struck_us),
        ("user_p995_growth_us_10us", none, "user", 10, &struck_us),
    ];
    let each = quantities
        .map(|(name, target, tier, budget, of)| Ratio::of(name, target, worst(tier, budget, of)));
    let lost = Ratio::of("victim_lost", Target::AtMost(0.0), lost);
    lost.into_iter().chain(each.into_iter().flatten()).collect()
}
