//! What is said of the instances of a handler, as what is said of the handler. Pure.

use ashway_api::answer::{
    Answer as Done, Compared, Handler, HandlerInstance, LastFault, Path, PathInstance, PathRun,
    Queue, Queues, Shadow, Word,
};

use crate::control::Answer;
use crate::request::Refusal;
use ashway_config::{instance_of, whole_name};

/// Makes one of those that follow each other and are one handler's instances.
pub(crate) fn handlers(each: impl Iterator<Item = Handler>) -> Vec<Handler> {
    let mut all: Vec<Handler> = Vec::new();
    for mut one in each {
        let Some((of, cpu)) = instance_of(&one.name) else {
            all.push(one);
            continue;
        };
        let of = of.to_owned();
        let instance = HandlerInstance {
            name: std::mem::replace(&mut one.name, of),
            cpu,
            tier: one.tier.clone(),
            ran_in: one.ran_in,
            bytes: one.bytes,
            reader: one.endpoint.and_then(|endpoint| endpoint.reader),
            in_flows: one.in_flows,
            stopped: one.last_fault.as_ref().map_or(0, |fault| fault.count),
        };
        match all.last_mut().filter(|last| last.name == one.name) {
            Some(sum) => add_handler(sum, one),
            None => all.push(one),
        }
        if let Some(sum) = all.last_mut() {
            // They may have come in another order.
            let at = sum.instances.partition_point(|known| known.cpu < cpu);
            sum.instances.insert(at, instance);
        }
    }
    all
}

fn add_handler(sum: &mut Handler, one: Handler) {
    sum.tier = tiers(&sum.tier, &one.tier);
    sum.ran_in = match (sum.ran_in, one.ran_in) {
        (Some(mut all), Some(more)) => {
            all += more;
            Some(all)
        }
        (all, more) => all.or(more),
    };
    sum.bytes += one.bytes;
    sum.in_flows += one.in_flows;
    // Where one could not be promoted, that is what is to be known.
    if one.promotion.state != sum.promotion.state && one.promotion.because().is_some() {
        sum.promotion = one.promotion;
    }
    sum.last_fault = match (sum.last_fault.take(), one.last_fault) {
        (Some(first), Some(more)) => Some(LastFault {
            count: first.count + more.count,
            ..first
        }),
        (first, more) => first.or(more),
    };
}

/// The same of paths.
pub(crate) fn paths(each: impl Iterator<Item = Path>) -> Vec<Path> {
    let mut all: Vec<Path> = Vec::new();
    for mut one in each {
        let Some((of, cpu)) = instance_of(&one.base.name) else {
            all.push(one);
            continue;
        };
        let of = of.to_owned();
        let bypassed = one.base.bypass.as_ref().map(|_| "bypassed".to_owned());
        let instance = PathInstance {
            name: std::mem::replace(&mut one.base.name, of),
            cpu,
            tier: bypassed.unwrap_or_else(|| one.base.tier.to_string()),
            counts: one.base.counts.clone(),
            ran_in: one.ran_in,
        };
        if let Some(bound) = &mut one.bound {
            whole(&mut bound.handler);
        }
        whole(&mut one.from);
        let stages = one.run.iter_mut().flat_map(|run| &mut run.stages);
        stages.for_each(|stage| whole(&mut stage.module));
        match all
            .last_mut()
            .filter(|last| last.base.name == one.base.name)
        {
            Some(sum) => add_path(sum, one),
            None => all.push(one),
        }
        if let Some(sum) = all.last_mut() {
            // They may have come in another order.
            let at = sum.instances.partition_point(|known| known.cpu < cpu);
            sum.instances.insert(at, instance);
        }
    }
    all
}

/// As all instances are called.
fn whole(name: &mut String) {
    name.truncate(whole_name(name).len());
}

fn add_path(sum: &mut Path, one: Path) {
    let base = &mut sum.base;
    base.tier = tiers(&base.tier, &one.base.tier).into();
    base.counts += &one.base.counts;
    base.bypass = base.bypass.take().or(one.base.bypass);
    if sum.promotion.why.is_none() {
        sum.promotion = one.promotion;
    }
    if let (Some(all), Some(more)) = (&mut sum.ran_in, one.ran_in) {
        *all += more;
    }
    if let (Some(all), Some(more)) = (&mut sum.bound, one.bound) {
        all.stays = all.stays.take().or(more.stays);
    }
    match (&mut sum.run, one.run) {
        (Some(all), Some(more)) => add_run(all, more),
        (all, more) => *all = all.take().or(more),
    }
}

fn add_run(sum: &mut PathRun, one: PathRun) {
    let add = |sum: &mut Queue, one: Queue| {
        sum.length += one.length;
        sum.maximum += one.maximum;
    };
    let Queues {
        in_forward,
        in_backward,
        out_forward,
        out_backward,
    } = one.queues;
    add(&mut sum.queues.in_forward, in_forward);
    add(&mut sum.queues.in_backward, in_backward);
    add(&mut sum.queues.out_forward, out_forward);
    add(&mut sum.queues.out_backward, out_backward);
    sum.originated += one.originated;
    sum.runs += one.runs;
    sum.time_ns += one.time_ns;
    sum.kernel_time_ns += one.kernel_time_ns;
    sum.memory.bytes += one.memory.bytes;
    sum.memory.granted_bytes += one.memory.granted_bytes;
    sum.fault = sum.fault.take().or(one.fault);
}

/// The tiers of both, each once, in the order of the alphabet.
fn tiers(one: &str, other: &str) -> String {
    let mut all: Vec<&str> = one.split(',').chain(other.split(',')).collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

/// One answer of those of each instance, in the order of their CPUs: what is refused for one is,
/// though the others have done it.
pub(crate) fn join(answers: Vec<Answer>) -> Answer {
    let count = answers.len();
    let mut done = Vec::with_capacity(count);
    let mut refused = None;
    for answer in answers {
        match answer {
            Answer::Ok(one) | Answer::WithFd(one, _) => done.push(one),
            Answer::Refused(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    if let Some(refusal) = refused {
        if done.is_empty() {
            return Answer::Refused(refusal);
        }
        let message = format!(
            "{}; of the {count} instances {} have done it",
            refusal.message,
            done.len()
        );
        return Answer::Refused(Refusal { message, ..refusal });
    }
    let mut done = done.into_iter();
    let Some(mut sum) = done.next() else {
        return Answer::Refused(Refusal::failed("there is no instance", ""));
    };
    match &mut sum {
        Done::Moved(sum) => whole(&mut sum.path),
        Done::Enabled(sum) => whole(&mut sum.path),
        Done::Swapped(sum) => whole(&mut sum.handler),
        _ => {}
    }
    done.for_each(|one| add(&mut sum, one));
    Answer::Ok(sum)
}

fn add(sum: &mut Done, one: Done) {
    match (sum, one) {
        (Done::Moved(sum), Done::Moved(one)) => {
            sum.tier = Word::from(tiers(&sum.tier, &one.tier));
            sum.switch_ns += one.switch_ns;
            sum.bypass = sum.bypass.take().or(one.bypass);
            sum.shadow = match (sum.shadow, one.shadow) {
                (Some(all), Some(more)) => Some(Shadow {
                    compared: compared(all.compared, more.compared),
                }),
                (all, more) => all.or(more),
            };
        }
        (Done::Enabled(sum), Done::Enabled(one)) => {
            sum.tier = Word::from(tiers(&sum.tier, &one.tier));
            sum.was_bypassed |= one.was_bypassed;
        }
        (Done::Swapped(sum), Done::Swapped(one)) => {
            sum.hold_ns = sum.hold_ns.max(one.hold_ns);
            sum.away_us = sum.away_us.max(one.away_us);
            sum.took_us = sum.took_us.max(one.took_us);
            sum.left_kernel.extend(one.left_kernel);
        }
        _ => {}
    }
}

fn compared(all: Option<Compared>, more: Option<Compared>) -> Option<Compared> {
    match (all, more) {
        (Some(all), Some(more)) => Some(Compared {
            equal: all.equal + more.equal,
            unclear: all.unclear + more.unclear,
            now: all.now || more.now,
        }),
        (all, more) => all.or(more),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use ashway_abi::Count;
    use ashway_api::answer::{Counts, Moved, RanIn};

    fn path(name: &str, tier: &'static str, received: u64) -> Path {
        let row = |count| match count {
            Count::Received | Count::Answered => received,
            _ => 0,
        };
        let mut path = Path {
            ran_in: Some(RanIn {
                kernel: received,
                user: 0,
            }),
            ..Path::default()
        };
        path.base.name = name.to_owned();
        path.base.tier = tier.into();
        path.base.counts = Counts::of(row, 0);
        path
    }

    #[test]
    fn the_paths_to_each_instance_are_one_and_their_sum() {
        let each = [
            path("a", "user", 1),
            path("p@1", "user", 4),
            path("p@0", "kernel", 3),
            path("q@0", "kernel", 5),
        ];
        let all = paths(each.into_iter());
        let said: Vec<_> = all
            .iter()
            .map(|path| {
                (
                    &*path.base.name,
                    &*path.base.tier,
                    path.base.counts.received,
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("a", "user", 1),
                ("p", "kernel,user", 7),
                ("q", "kernel", 5)
            ]
        );
        let sum = &all[1];
        assert_eq!(sum.base.counts.fates.others.get("answered"), 7);
        assert!(sum.base.counts.balanced);
        assert_eq!(sum.ran_in.unwrap().all(), 7);
        let each: Vec<_> = sum
            .instances
            .iter()
            .map(|one| (&*one.name, one.cpu, &*one.tier, one.counts.received))
            .collect();
        assert_eq!(each, [("p@0", 0, "kernel", 3), ("p@1", 1, "user", 4)]);
        assert!(all[0].instances.is_empty());
    }

    #[test]
    fn the_instances_of_a_handler_are_one_and_their_sum() {
        let one = |name: &str, stopped| Handler {
            name: name.to_owned(),
            tier: "kernel".to_owned(),
            bytes: 100,
            last_fault: (stopped > 0).then(|| LastFault {
                count: stopped,
                ..LastFault::default()
            }),
            ..Handler::default()
        };
        let all = handlers([one("h@0", 0), one("h@1", 2), one("i", 1)].into_iter());
        assert_eq!(all.len(), 2);
        assert_eq!((&*all[0].name, all[0].bytes), ("h", 200));
        assert_eq!(all[0].last_fault.as_ref().unwrap().count, 2);
        assert_eq!(all[0].instances[1].stopped, 2);
    }

    #[test]
    fn what_one_refuses_is_refused() {
        let moved = |path: &str| {
            let path = path.to_owned();
            let tier = "kernel".into();
            Answer::Ok(Done::Moved(Moved {
                path,
                tier,
                switch_ns: 5,
                ..Moved::default()
            }))
        };
        let refused = || Answer::Refused(Refusal::failed("no", "do"));
        let Answer::Ok(Done::Moved(sum)) = join(vec![moved("p@0"), moved("p@1")]) else {
            panic!("both were moved");
        };
        assert_eq!((&*sum.path, &*sum.tier, sum.switch_ns), ("p", "kernel", 10));
        let Answer::Refused(said) = join(vec![moved("p@0"), refused()]) else {
            panic!("one was not moved");
        };
        assert_eq!(said.message, "no; of the 2 instances 1 have done it");
        assert!(
            matches!(join(vec![refused(), refused()]), Answer::Refused(said) if said.message == "no")
        );
    }
}
