//! Waiting until what runs on a CPU in softirq has ended.
//!
//! A driver's poll is not preemptible by user code, so user code that runs on a
//! CPU knows that no poll is in progress there, and that what programs of an
//! earlier poll sent, redirected or passed has left the driver.

use rustix::thread::{
    CpuSet, MembarrierCommand, membarrier, sched_getaffinity, sched_getcpu, sched_setaffinity,
};

/// Runs on `cpu` for a moment, then goes back to where it was. Tens of
/// microseconds if that CPU is idle or in softirq, a scheduler's slice if other
/// processes want it too.
pub(crate) fn visit(cpu: usize) {
    let here = sched_getcpu();
    if here == cpu {
        return;
    }
    let moved = sched_getaffinity(None).and_then(|allowed| {
        sched_setaffinity(None, &only(cpu)?)?;
        // Back at once: the sender of the messages probably lives over there.
        let _ = only(here).and_then(|here| sched_setaffinity(None, &here));
        sched_setaffinity(None, &allowed)
    });
    if moved.is_err() {
        // The CPU is not ours to use. An RCU grace period ends only after every
        // poll that is in progress now; it takes milliseconds.
        let _ = membarrier(MembarrierCommand::Global);
    }
}

fn only(cpu: usize) -> rustix::io::Result<CpuSet> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_leaves_the_affinity_as_it_was() {
        let before = sched_getaffinity(None).unwrap();
        for cpu in [0, 1, 1023, 5000] {
            visit(cpu);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        }
    }
}
