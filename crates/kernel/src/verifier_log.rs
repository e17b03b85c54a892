//! Reading the verifier's log: which of its thousands of lines matter.

/// What a person should see of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary<'a> {
    /// Why the program was refused, in the verifier's words.
    pub reason: &'a str,
    /// Index of the last instruction mentioned.
    pub insn: Option<usize>,
    /// Source of the last instruction that has any: `text @ file:line`, as the
    /// verifier prints it from the BTF line information.
    pub source: Option<&'a str>,
    /// The last few lines, statistics left out.
    pub tail: Vec<&'a str>,
}

/// How many lines [`Summary::tail`] holds at most.
const TAIL_LINES: usize = 8;

/// Sums a log up. Linear in its length.
#[must_use]
pub fn summary(log: &str) -> Summary<'_> {
    let mut insn = None;
    let mut source = None;
    let mut lines = Vec::new();
    for line in log.lines().map(str::trim_end) {
        if line.is_empty() || is_statistics(line) {
            continue;
        }
        if let Some(text) = line.strip_prefix("; ") {
            source = Some(text);
        } else if let Some(index) = insn_index(line) {
            insn = Some(index);
        }
        lines.push(line);
    }
    Summary {
        reason: lines.last().copied().unwrap_or("it gave no reason"),
        insn,
        source,
        tail: lines.split_off(lines.len().saturating_sub(TAIL_LINES)),
    }
}

/// The last line that is no statistics: by the verifier's habit, the reason.
#[must_use]
pub fn reason(log: &str) -> &str {
    summary(log).reason
}

/// Lines that follow the reason in every log.
fn is_statistics(line: &str) -> bool {
    [
        "processed ",
        "verification time ",
        "stack depth ",
        "max_states",
    ]
    .iter()
    .any(|start| line.starts_with(start))
}

/// The number before `: (` in `12: (07) r0 += 1`.
fn insn_index(line: &str) -> Option<usize> {
    let (number, rest) = line.split_once(": ")?;
    rest.starts_with('(').then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
0: R1=ctx() R10=fp0
; int on_rx(int len, int channel) @ counter.c:12
0: (b7) r0 = 0                        ; R0_w=0
; return *p; @ counter.c:14
1: (79) r0 = *(u64 *)(r2 +0)
R2 !read_ok
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
";

    #[test]
    fn reason_place_and_source_are_found() {
        let summary = summary(LOG);
        assert_eq!(summary.reason, "R2 !read_ok");
        assert_eq!(summary.insn, Some(1));
        assert_eq!(summary.source, Some("return *p; @ counter.c:14"));
        assert_eq!(summary.tail.len(), 6);
    }

    #[test]
    fn an_empty_log_has_a_reason_too() {
        assert_eq!(summary("").reason, "it gave no reason");
        assert_eq!(summary("").insn, None);
    }
}
