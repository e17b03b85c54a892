//! The handlers of a node.

use ashway_api::Scalar;
use ashway_api::answer::{self, HandlerPromotion};
use serde_json::json;

use super::{hint, in_kernel, some_rows};
use crate::table;

/// The handlers and why each runs where it runs.
pub(crate) fn handlers(status: &answer::Status) -> String {
    let all = &status.handlers;
    let rows: Vec<_> = all
        .iter()
        .map(|handler| {
            vec![
                handler.name.clone(),
                handler.tier.clone(),
                in_kernel(handler.ran_in),
                handler.memory.to_string(),
                handler.bytes.to_string(),
                short(&handler.digest),
                owner(handler.owner),
                handler.promotion.state.to_string(),
                why(&handler.promotion),
            ]
        })
        .collect();
    let header = [
        "HANDLER",
        "TIER",
        "RAN IN KERNEL",
        "MEMORY",
        "BYTES",
        "DIGEST",
        "OWNER",
        "PROMOTION",
        "WHY",
    ];
    let mut parts = vec![table::render(&header, &rows)];
    let granted: Vec<_> = all
        .iter()
        .map(|handler| {
            let params: Vec<_> = handler.params.iter().map(param).collect();
            vec![
                handler.name.clone(),
                handler.allow.join(","),
                params.join(" "),
            ]
        })
        .filter(|row| row[1..].iter().any(|cell| !cell.is_empty()))
        .collect();
    parts.push(some_rows(&["HANDLER", "MAY", "PARAMETERS"], &granted));
    let faults: Vec<_> = all
        .iter()
        .filter_map(|handler| Some((&handler.name, handler.last_fault.as_ref()?)))
        .map(|(name, fault)| {
            let place = match (&fault.file, fault.line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                _ => format!("offset {}", fault.at),
            };
            let cause = fault.cause.as_deref().unwrap_or_default();
            vec![
                name.clone(),
                cause.to_owned(),
                place,
                fault.count.to_string(),
            ]
        })
        .collect();
    let header = ["STOPPED HANDLER", "LAST CAUSE", "AT", "TIMES"];
    parts.push(some_rows(&header, &faults));
    let former: Vec<_> = all
        .iter()
        .flat_map(|handler| handler.former.iter().map(|former| (&handler.name, former)))
        .map(|(name, former)| vec![name.clone(), short(&former.digest), former.file.clone()])
        .collect();
    parts.push(some_rows(&["HANDLER", "BEFORE", "FROM"], &former));
    parts.retain(|part| !part.is_empty());
    let mut out = parts.join("\n");
    for handler in all {
        let fault = handler.last_fault.as_ref();
        out += &hint(&handler.name, fault.and_then(|fault| fault.hint.as_deref()));
    }
    out
}

/// Why a handler is where it is, or what its program took.
fn why(promotion: &HandlerPromotion) -> String {
    match (promotion.because(), promotion.line(), &promotion.program) {
        (Some(because), Some(line), _) => format!("{because} ({line})"),
        (Some(because), None, _) => because.to_owned(),
        (None, _, Some(program)) => format!(
            "{} instructions, {} verified, loaded in {} us",
            program.insns, program.verified_insns, program.load_us
        ),
        (None, ..) => String::new(),
    }
}

/// A parameter: a text stands in quotation marks.
pub(super) fn param((name, value): (&String, &Scalar<i64>)) -> String {
    match value {
        Scalar::Number(number) => format!("{name}={number}"),
        Scalar::Text(text) => format!("{name}={}", json!(text)),
    }
}

/// The beginning of a digest.
fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// Who takes something along when it ends.
fn owner(owner: Option<u32>) -> String {
    owner.map_or_else(|| "node".to_owned(), |pid| format!("process {pid}"))
}
