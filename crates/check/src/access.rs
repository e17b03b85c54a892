//! Loads, stores and atomics: what may be reached, and how.

use super::Around;
use super::state::{WORDS, fact};
use super::step::Step;
use super::value::{Base, Num, Packet, Region, Tag, Value};
use super::violation::{Checked, Rule};
use crate::bpf::form::Operand;
use crate::bpf::{Atomic, Field, Hook, Insn, Size, skb};
use crate::bug::{self, Bug};
use ashway_abi::{context, count, trusted};
use std::ops::Range;

/// Behind the words.
const FIRST_FRAME: u64 = context::FRAMES as u64 + 8 * WORDS as u64;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Atomic,
}

impl Step<'_> {
    /// That `bytes` bytes at `pointer` may be reached. Fields of the
    /// context below the frames, and trusted words below the rings, have rules
    /// of their own when they are written.
    pub(super) fn reach(&self, pointer: Value, bytes: u32, access: Access) -> Checked {
        let (good, rule) = match pointer {
            Value::Packet(packet) => {
                let end = i64::from(packet.off) + i64::from(bytes);
                let covered = packet.off >= 0 && end <= packet.known.into();
                let covered = covered || bug::is(Bug::CheckNoPacketEnd);
                (covered && access != Access::Atomic, Rule::Packet)
            }
            Value::In(region, at) => {
                let touched = at.touches(bytes);
                let room = self.room(region, at, access);
                // A word in two cache lines would stop the whole machine, or kill
                // the kernel (split lock detection).
                let zeros = match (at.tag, region) {
                    (Tag::Even(zeros), _) => zeros,
                    // Only trusted code has pointers there.
                    (_, Region::Trusted) => 3,
                    _ => at.min.trailing_zeros() * u32::from(at.constant().is_some()),
                };
                let aligned = access != Access::Atomic || zeros >= bytes.trailing_zeros();
                let inside = room.start <= touched.start && touched.end <= room.end && aligned;
                let locked = region == Region::Trusted && access != Access::Read;
                let inside = inside && !(locked && self.touches_lock(&touched));
                match region {
                    Region::Context => (inside || bug::is(Bug::CheckNoContext), Rule::Context),
                    _ => (inside, Rule::Access),
                }
            }
            _ => (bug::is(Bug::CheckNoBase), Rule::Access),
        };
        if good { Ok(()) } else { Err(rule) }
    }

    /// The bytes of a region that such an access may touch.
    fn room(&self, region: Region, at: Num, access: Access) -> Range<u128> {
        let layout = &self.shape.layout;
        let trusted_bytes = match self.shape.around {
            Around::Instance(queue) => queue.bytes(),
            Around::Stub => 0,
        };
        let (from, to) = match (region, access) {
            (Region::Context, Access::Read) if at.constant().is_some() => (0, context::BYTES),
            (Region::Context, Access::Read | Access::Write) => {
                (context::FRAMES as usize, context::BYTES)
            }
            (Region::Trusted, Access::Write) => (trusted::PATHS, trusted_bytes),
            // The lock is not in it.
            (Region::Trusted, Access::Atomic) => (trusted::NEED_WAKE, trusted_bytes),
            (Region::Trusted, Access::Read) => (0, trusted_bytes),
            (Region::Row, _) => (0, count::KERNEL_BYTES),
            // Without the lock a program has no business there but with the endpoint.
            (Region::Memory | Region::Arena, _) if !self.state.has(fact::LOCKED) => {
                (layout.endpoint_payload(0), layout.total_bytes())
            }
            (Region::Memory, _) => (0, layout.total_bytes()),
            // A page that is not there reads as 0, and the guard around the
            // arena is as wide as an instruction's offset.
            (Region::Arena, _) => return 0..u128::MAX,
            _ => (0, 0),
        };
        from as u128..to as u128
    }

    pub(super) fn load(&mut self, pointer: Value, size: Size, signed: bool) -> Checked<Value> {
        match pointer {
            Value::In(Region::Md, at) if size == Size::W && !signed => {
                return md_field(self.image.hook, at);
            }
            // Refused by the kernel (docs/facts.md, "Arena instructions").
            Value::In(Region::Arena, _) if signed => return Err(Rule::Access),
            _ => {}
        }
        if let Some(value) = self.state.cell(pointer, size) {
            let set = *value != Value::Unset;
            return if set { Ok(*value) } else { Err(Rule::Unset) };
        }
        self.reach(pointer, size.bytes(), Access::Read)?;
        let num = Num::of_bytes(size.bytes());
        let field = match pointer {
            Value::In(Region::Context, at) => at.only(),
            _ => None,
        };
        Ok(Value::Num(match field {
            _ if signed => Num::any(true),
            Some(context::ZERO) if matches!(size, Size::D | Size::W) => Num::exactly(0),
            Some(at) if size == Size::D && at < context::FRAMES => num.tagged(Tag::Word(at)),
            _ => num,
        }))
    }

    pub(super) fn store(&mut self, pointer: Value, size: Size, src: Operand) -> Checked {
        let value = self.operand(src)?;
        let num = match (pointer, value) {
            (Value::In(Region::Stack, _), _) => {
                *self.state.cell(pointer, size).ok_or(Rule::Access)? = value;
                return Ok(());
            }
            (_, Value::Num(num)) => num,
            _ if bug::is(Bug::CheckPointerLeak) => Num::any(true),
            _ => return Err(Rule::Pointer),
        };
        if let Value::In(Region::Trusted, at) = pointer
            && self.is_own_lock(at)
        {
            return self.free_lock(size, num);
        }
        if let Value::In(region, at) = pointer
            && let Some(at) = at.only()
        {
            match region {
                Region::Context if at < context::FRAMES => {
                    return self.store_field(at, size, num, src);
                }
                Region::Trusted if (at as usize) < trusted::RINGS => {
                    return self.store_trusted(at as usize, size, num);
                }
                _ => {}
            }
        }
        if let Value::In(Region::Trusted, at) = pointer
            && at.min < trusted::RINGS as u64
        {
            self.store_of_some_path(at, size)?;
        }
        if let Value::In(Region::Context, at) = pointer {
            match self.state.cell(pointer, size) {
                Some(cell) => *cell = Value::Num(num),
                None if at.min >= FIRST_FRAME => {}
                None => self.state.forget_words(),
            }
        }
        self.reach(pointer, size.bytes(), Access::Write)
    }

    fn store_trusted(&mut self, at: usize, size: Size, num: Num) -> Checked {
        match (at, num.constant()) {
            (trusted::LOCK, _) if self.locks() == 0 => return self.free_lock(size, num),
            (trusted::LOCK, _) => return Err(Rule::Lock),
            (
                trusted::FAULT_CAUSE
                | trusted::FAULT_AT
                | trusted::FAULT_ROW
                | trusted::FAULT_VERSION,
                _,
            ) if size == Size::W => {}
            (trusted::PATHS.., _) if is_of_share(at, size) && self.has_whole_lock() => {}
            _ => return Err(Rule::Access),
        }
        Ok(())
    }

    /// The lock that was taken is free, or the worker's, who frees it.
    fn free_lock(&mut self, size: Size, num: Num) -> Checked {
        const HELD: u64 = trusted::HELD as u64;
        let freed = matches!(num.constant(), Some(0 | HELD)) && size == Size::W;
        if !freed || !self.state.has(fact::LOCKED) {
            return Err(Rule::Lock);
        }
        self.state.set(fact::LOCKED | fact::MAY_BE_LOCKED, false);
        Ok(())
    }

    /// Whether no other CPU runs the handler.
    fn has_whole_lock(&self) -> bool {
        self.state.has(fact::LOCKED) && self.locks() == 0
    }

    /// Locks of the handler beside the one for all CPUs.
    pub(super) fn locks(&self) -> u64 {
        match self.shape.around {
            Around::Instance(queue) => queue.locks as u64,
            Around::Stub => 0,
        }
    }

    /// Where the first of them is.
    pub(super) fn first_lock(&self) -> u64 {
        match self.shape.around {
            Around::Instance(queue) => queue.cpu_lock(0) as u64,
            Around::Stub => u64::MAX,
        }
    }

    /// Whether the lock of the CPU that runs is there: not where it is taken off the beginning.
    fn is_own_lock(&self, at: Num) -> bool {
        at.tag == Tag::OwnLock && at.min >= self.first_lock()
    }

    /// Whether some of these bytes of the trusted words are of a CPU's lock.
    fn touches_lock(&self, touched: &Range<u128>) -> bool {
        let Around::Instance(queue) = self.shape.around else {
            return false;
        };
        let locks = queue.cpu_lock(0) as u128..queue.cpu_lock(queue.locks) as u128;
        touched.start < locks.end && locks.start < touched.end
    }

    /// A store to the words of one of several paths. What is known of the place is the
    /// first one and the last: both have to be such a word, and of a path.
    fn store_of_some_path(&self, at: Num, size: Size) -> Checked {
        let (Ok(first), Ok(last)) = (usize::try_from(at.min), usize::try_from(at.max)) else {
            return Err(Rule::Access);
        };
        let paths = trusted::PATHS..trusted::RINGS;
        let good = [first, last].iter().all(|at| paths.contains(at))
            && (last - first).is_multiple_of(trusted::PATH_STRIDE)
            && is_of_share(first, size)
            && self.has_whole_lock();
        good.then_some(()).ok_or(Rule::Access)
    }

    /// `what` is the immediate.
    pub(super) fn atomic(&mut self, insn: Insn, wide: bool, what: i32) -> Checked {
        const COMPARE_EXCHANGE: i32 = Atomic::CompareExchange as i32;
        const FETCH: i32 = 1;
        let pointer = self.pointer(insn.dst, insn.off)?;
        let value = self.number(insn.src)?;
        // When it succeeds the CPU leaves `r0` as it is, upper half included,
        // and Linux 6.18 does not clear that for an arena.
        let upper = what == COMPARE_EXCHANGE && self.number(0)?.max > u32::MAX.into();
        let mut old = Num::any(wide || upper);
        let is_lock = match pointer {
            Value::In(Region::Trusted, at) if self.locks() > 0 => self.is_own_lock(at),
            pointer => pointer == Value::begin(Region::Trusted),
        };
        if is_lock && what == COMPARE_EXCHANGE && wide {
            self.take_lock(value)?;
            old.tag = Tag::Lock;
        } else {
            self.reach(pointer, if wide { 8 } else { 4 }, Access::Atomic)?;
        }
        match what {
            COMPARE_EXCHANGE => self.write(0, Value::Num(old)),
            _ if what & FETCH != 0 => self.write(insn.src, Value::Num(old)),
            _ => Ok(()),
        }
    }

    /// 0 becomes [the kernel tier's](trusted::IN_KERNEL), or somebody else has it, or [wants](trusted::WANTED) it.
    fn take_lock(&mut self, value: Num) -> Checked {
        let values = (self.number(0)?.constant(), value.constant());
        if values != (Some(0), Some(trusted::IN_KERNEL.into()))
            || self.state.has(fact::MAY_BE_LOCKED)
        {
            return Err(Rule::Lock);
        }
        self.state.set(fact::MAY_BE_LOCKED, true);
        Ok(())
    }
}

/// Whether it is one of a path's words about its share, at this place behind
/// [`trusted::PATHS`].
fn is_of_share(at: usize, size: Size) -> bool {
    match (at - trusted::PATHS) % trusted::PATH_STRIDE {
        trusted::PATH_PAID | trusted::PATH_LAZY_AT => size == Size::D,
        trusted::PATH_LAZY => size == Size::W,
        _ => false,
    }
}

/// What programs behind the entry program read of a `__sk_buff` besides.
const SKB_FIELDS: [i16; 6] = [
    skb::LEN,
    skb::VLAN_PRESENT,
    skb::VLAN_TCI,
    skb::VLAN_PROTO,
    skb::GSO_SEGS,
    skb::GSO_SIZE,
];

fn md_field(hook: Hook, at: Num) -> Checked<Value> {
    let packet = |base| Value::Packet(Packet::begin(base));
    let at = at.only().ok_or(Rule::Access)?;
    Ok(match hook.field(at.into()) {
        Some(Field::Data) => packet(Base::Data),
        Some(Field::DataMeta) => packet(Base::Meta),
        Some(Field::DataEnd) => Value::PacketEnd,
        Some(Field::Ifindex | Field::RxQueue) => Value::Num(Num::any(false)),
        None if hook == Hook::Tcx && SKB_FIELDS.contains(&at) => Value::Num(Num::any(false)),
        None => return Err(Rule::Access),
    })
}
