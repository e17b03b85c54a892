//! The program behind a path's slot: one per handler instance and tier.
//!
//! In the user tier it is only [`deliver`]: the message goes into a ring and
//! the worker is woken. In the kernel tier the promoted handler comes first,
//! between a trusted prologue (is it this message's turn? is the instance
//! free?) and a trusted epilogue (do what the verdict says, count it); a
//! message whose turn it is not falls through to `deliver`.
//!
//! * **Never overtake:** the handler runs only while no earlier message of the
//!   [flow] is in the user tier (ASH §V.B, the TCP handler's
//!   third condition): while none of the path is, `in_user` is 0 and nobody asks for more.
//!   The other way round, the first message in the ring
//!   behind one of the kernel tier says so, and the worker waits until that one
//!   has left the driver.
//! * **A path fills its own part of the ring:** where an instance has several, a message
//!   is dropped on arrival whose path has as many in the user tier as its ring has free slots.
//! * **A flood does not keep a path in the user tier:** where messages that wait
//!   for order's sake alone fill that, their flow [drains](trusted::DRAINING).
//! * **No more than its share:** above [it](ashway_abi::share) a path's messages go to
//!   the user tier, and are dropped before any work is done once
//!   [some](trusted::LAZY_MESSAGES) wait there. Of the kernel tier only programs of paths that have a share have anything of it.
//! * **Serial:** one activation of an instance at a time, by a lock that
//!   only trusted code can reach. It is released on every way out. Who finds it taken by another
//!   CPU looks at it for [about as long as the handler runs](wait), and no longer. A handler that
//!   was built for several CPUs at once has [a lock for each](cpu_lock).
//! * **A verdict is an allegation:** the epilogue finds packet pointers afresh
//!   and believes nothing the handler could have written.

pub mod alone;
mod chain;
mod cpu_lock;
mod endpoint;
pub(crate) mod enqueue;
mod fill;
mod flow;
mod keep;
mod log;
mod reply;
mod resize;
pub(crate) mod share;
mod wait;

pub(crate) use enqueue::Origin;
pub(crate) use reply::{EXIT_BYTES, EXIT_MARK, mark_for_exit, whole_checksum};

use ashway_abi::memory::Layout;
use ashway_abi::share::Terms;
use ashway_abi::{Cause, Count, QueueLayout, Verdict, context, context::flag, trusted};

use crate::hook::{self, Action};
use crate::normalise::Module;
use crate::observe::{self, Note, Word};
use crate::parts::{self, Packet};
use crate::promote::{self, PromoteError, Shape};
use crate::timed;
use Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use ashway_abi::MemoryKind;
use ashway_check::bpf::{Assembler, Atomic, Field, Hook, Image, Label, MapRef, Reg, Size, op};

/// Stack: the `md` pointer (promoted code reads this slot and the next
/// three, [`promote`]).
const MD: i16 = -8;
/// Stack: the payload's packet pointer.
const PAYLOAD: i16 = -16;
/// Stack: `data_end`.
const END: i16 = -24;
/// Stack: the memory's address, in array mode.
const MEMORY: i16 = -32;

/// Where the payload of a [plain](flag::PLAIN) packet starts.
const PLAIN_PAYLOADS: [i32; 2] = [42, 62];

/// What programs have to know about the queue that they put messages into.
#[derive(Clone, Copy, Debug)]
pub struct QueueSpec {
    /// Contexts there are: one for each possible CPU.
    pub cpus: u32,
    /// Where the programs run. Under TCX memories are arenas, and packets are read by pointers.
    pub hook: Hook,
    /// What it has, and where.
    pub layout: QueueLayout,
    /// How they read packets.
    pub packet: Packet,
    /// Where a message is noted that runs in the kernel tier.
    pub order_scope: OrderScope,
}

/// What a program of the kernel tier has to know about an instance.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its queue.
    pub queue: QueueSpec,
    /// Where its memory's regions lie.
    pub layout: Layout,
    /// What its memory is.
    pub memory: MemoryKind,
}

impl Spec {
    /// Whether the handler runs on several CPUs at once.
    const fn is_parallel(&self) -> bool {
        self.queue.layout.locks > 0
    }
}

/// Whose next message in a ring has to wait until one of the kernel tier has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderScope {
    /// The queue's: a handler's messages are in order whatever their path.
    #[default]
    Ring,
    /// The path's, by [`trusted::PATH_BEHIND_KERNEL`]. Its paths take whole frames.
    Path {
        /// Paths below this number are relays, and 0 is all those that have no number of
        /// their own.
        relays: usize,
    },
}

/// The handler half of a kernel-tier program.
#[derive(Clone, Copy, Debug)]
pub struct Handler<'m> {
    /// The normalised module.
    pub module: &'m Module<'m>,
    /// Index of the function to run.
    pub entry: u32,
    /// The number of the one path whose messages it gets, if that has one yet; else each
    /// message's context says it, which takes 0.7 ns.
    pub path: Option<usize>,
    /// How much it may use.
    pub budget: ashway_abi::Budget,
    /// What its path may use, if that has a limit.
    pub share: Option<Terms>,
    /// Whether `reply` was granted; if not it is no verdict.
    pub may_reply: bool,
    /// Keeps locals out of registers: the second try when the verifier finds
    /// the first too complex (docs/facts.md, "Locals in memory").
    pub locals_in_memory: bool,
}

/// Generates the user tier's program. Linux 6.9 (`may_goto`).
#[must_use]
pub fn user(spec: &QueueSpec) -> Image {
    user_with(spec, false)
}

/// The same program, which says what it does ([`ashway_abi::observe`]) of messages
/// that come from an entry program that does.
#[must_use]
pub fn user_observed(spec: &QueueSpec) -> Image {
    user_with(spec, true)
}

fn user_with(spec: &QueueSpec, observe: bool) -> Image {
    let mut asm = Assembler::at(spec.hook);
    let host = asm.label();
    asm.mov(R6, R1);
    parts::find_context(&mut asm, spec.cpus, host);
    if observe {
        observe::turn(&mut asm);
    }
    asm.map(R7, MapRef::Trusted, Some(0));
    asm.mov_imm(R8, Count::QueuedTier as i32);
    enqueue::emit(&mut asm, spec, host, Origin::User, observe);
    asm.bind(host);
    hook::finish(&mut asm, Action::Pass);
    asm.finish()
}

/// Generates the kernel tier's program. Linux 6.12.
///
/// # Errors
///
/// [`PromoteError`] if the handler has something that cannot be translated.
pub fn kernel(spec: &Spec, handler: &Handler) -> Result<(Image, promote::Summary), PromoteError> {
    kernel_with(spec, handler, false)
}

/// The same program, which says what it does, as [`user_observed`].
///
/// # Errors
///
/// As [`kernel`].
pub fn kernel_observed(
    spec: &Spec,
    handler: &Handler,
) -> Result<(Image, promote::Summary), PromoteError> {
    kernel_with(spec, handler, true)
}

fn kernel_with(
    spec: &Spec,
    handler: &Handler,
    observe: bool,
) -> Result<(Image, promote::Summary), PromoteError> {
    let mut asm = Assembler::at(spec.queue.hook);
    let host = asm.label();
    let queue = asm.label();
    let drained = asm.label();
    let [busy, locked] = [(); 2].map(|()| asm.label());
    let done = asm.label();
    let trap = asm.label();
    let looks = promote::Looks::new(&mut asm);

    asm.mov(R6, R1);
    parts::find_context(&mut asm, spec.queue.cpus, host);
    if observe {
        observe::turn(&mut asm);
    }
    asm.map(R7, MapRef::Trusted, Some(0));
    turn(&mut asm, spec, handler, host, [queue, drained, busy]);
    asm.bind(locked);
    begin(&mut asm, spec, handler, queue);
    prepare(&mut asm, spec, handler, trap);
    let summary = promote::emit(
        &mut asm,
        &Shape {
            module: handler.module,
            entry: handler.entry,
            memory: spec.memory,
            layout: spec.layout,
            budget: handler.budget,
            locals_in_memory: handler.locals_in_memory,
            checks: promote::Checks::default(),
        },
        done,
        trap,
        looks,
    )?;
    asm.line(None);
    let finish = asm.label();
    let alleged = asm.label();
    verdict(&mut asm, spec, handler, done, alleged, finish, observe);
    fault(&mut asm, spec, handler, [trap, alleged], finish, observe);
    finish_here(&mut asm, handler, finish, observe);

    asm.bind(busy);
    if !spec.is_parallel() {
        wait::emit(&mut asm, locked, queue);
    }
    asm.bind(queue);
    let origin = Origin::Kernel {
        drained,
        share: handler.share.map(|_| share::AccountAt::OWN),
        path: handler.path,
    };
    enqueue::emit(&mut asm, &spec.queue, host, origin, observe);
    asm.bind(host);
    if spec.memory == MemoryKind::Arena {
        // A program belongs to the arena that it names, wherever; the value is not used.
        asm.map(R1, MapRef::Memory, None);
    }
    hook::finish(&mut asm, Action::Pass);
    looks.emit(&mut asm, &handler.budget);
    Ok((asm.finish(), summary))
}

/// Takes the lock if it is this message's turn; otherwise to `queue` with the
/// note to count in `r8`, to `drained`, or to `busy` ([`wait::emit`]).
fn turn(
    asm: &mut Assembler,
    spec: &Spec,
    handler: &Handler,
    host: Label,
    [queue, drained, busy]: [Label; 3],
) {
    let mine = asm.label();
    enqueue::path_word(asm, &spec.queue, handler.path, host);
    if handler.share.is_some() {
        asm.store(Size::D, R10, enqueue::PATH_WORD, R1);
    }
    flow::turn(asm, &spec.queue, handler.share.is_some(), mine, drained);
    asm.mov_imm(R8, Count::QueuedOrder as i32);
    asm.jump(queue);
    asm.bind(mine);
    unusual(asm, spec.queue.packet, queue);
    resize::take_room(asm, handler.module, queue);
    asm.mov_imm(R8, Count::QueuedBusy as i32);
    if spec.is_parallel() {
        cpu_lock::take(asm, &spec.queue, queue);
        return;
    }
    wait::exchange(asm);
    asm.jump_if_imm(op::JNE, R0, 0, busy);
}

/// Under the lock: goes on if the path keeps to its share, and notes that the message runs;
/// otherwise to `queue` with the note to count in `r8`.
fn begin(asm: &mut Assembler, spec: &Spec, handler: &Handler, queue: Label) {
    if handler.share.is_some() {
        let within = asm.label();
        share::ask(asm, share::AccountAt::OWN, within);
        unlock(asm, spec);
        asm.mov_imm(R8, Count::QueuedShare as i32);
        asm.jump(queue);
        asm.bind(within);
    }
    enqueue::note_kernel(asm, &spec.queue);
}

/// To `queue`, with the note to count in `r8`, with what is not for a handler of the kernel tier.
/// All of it is rare, so one question comes first. Clobbers `r1`.
fn unusual(asm: &mut Assembler, packet: Packet, queue: Label) {
    // A handler sees a tag where it lay. By helpers a packet pointer moves by constants only, and
    // there is one for each family's plain packets.
    let (asked, usual) = match packet {
        Packet::Pointers => (flag::UNCHECKED | flag::TAG_BESIDE, 0),
        Packet::Helpers => (
            flag::UNCHECKED | flag::TAG_BESIDE | flag::PLAIN,
            flag::PLAIN,
        ),
    };
    let none = asm.label();
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, asked as i32);
    asm.jump_if_imm(op::JEQ, R1, usual as i32, none);
    asm.mov_imm(R8, Count::QueuedLong as i32);
    asm.alu_imm(op::AND, R1, flag::UNCHECKED as i32);
    asm.jump_if_imm(op::JNE, R1, 0, queue);
    asm.mov_imm(R8, Count::QueuedOptions as i32);
    asm.jump(queue);
    asm.bind(none);
}

/// Sets up what promoted code relies on (`promote`'s contract).
fn prepare(asm: &mut Assembler, spec: &Spec, handler: &Handler, trap: Label) {
    let good = asm.label();
    // Before anything may trap: what the last activation on this CPU has left, of
    // whichever handler, would be taken for this one's.
    asm.store_imm(Size::W, R9, context::DIRTY, 0);
    if handler.module.logs() {
        promote::begin_log(asm);
    }
    asm.store(Size::D, R10, MD, R6);
    asm.field(R1, R6, Field::Data);
    asm.field(R2, R6, Field::DataEnd);
    asm.load(Size::W, R3, R9, context::PAYLOAD_OFF);
    match spec.queue.packet {
        Packet::Pointers => {
            let bounded = asm.label();
            let most = trusted::HEADERS_BYTES as i32;
            asm.jump_if_imm(op::JLE, R3, most, bounded);
            // Only entry programs write it, so this never happens; the
            // verifier wants a bound on a packet pointer's offset.
            trap_here(asm, handler, Cause::MessageBounds, trap);
            asm.bind(bounded);
            asm.alu(op::ADD, R1, R3);
        }
        Packet::Helpers => {
            for place in PLAIN_PAYLOADS {
                let next = asm.label();
                asm.jump_if_imm(op::JNE, R3, place, next);
                asm.alu_imm(op::ADD, R1, place);
                asm.jump(good);
                asm.bind(next);
            }
            trap_here(asm, handler, Cause::MessageBounds, trap);
        }
    }
    asm.bind(good);
    asm.store(Size::D, R10, PAYLOAD, R1);
    asm.store(Size::D, R10, END, R2);
    if spec.memory == MemoryKind::Array {
        asm.map(R1, MapRef::Memory, Some(0));
        asm.store(Size::D, R10, MEMORY, R1);
    }
    resize::say_most(asm, handler.module);
    if promote::recurses(handler.module) {
        asm.store_imm(Size::W, R9, context::STACK, 0);
    }
    if promote::keeps_time(handler.module) {
        let budget = &handler.budget;
        let slice = budget.first();
        asm.store_imm(Size::D, R9, context::FUEL, slice as i32);
        asm.load_imm(R1, budget.fuel - slice);
        asm.store(Size::D, R9, context::RESERVE, R1);
        asm.store_imm(Size::D, R9, context::DEADLINE, 0);
        asm.store_imm(Size::D, R9, context::GRACE, 0);
        asm.store_imm(Size::D, R9, context::BULK, promote::FIRST_TICKS);
    }
}

/// Stops with `cause` where the handler's function begins: no operator is to
/// blame.
fn trap_here(asm: &mut Assembler, handler: &Handler, cause: Cause, trap: Label) {
    let at = handler.module.functions[handler.entry as usize].at;
    asm.store_imm(Size::W, R9, context::CAUSE, cause as i32);
    asm.store_imm(Size::W, R9, context::AT, at as i32);
    asm.jump(trap);
}

/// Back from promoted code: `r6` = `md`, `r7` = trusted words.
fn recover(asm: &mut Assembler) {
    asm.load(Size::D, R6, R10, MD);
    asm.map(R7, MapRef::Trusted, Some(0));
}

fn unlock(asm: &mut Assembler, spec: &Spec) {
    leave(asm, spec, 0);
}

/// Leaves the lock, free or [held](trusted::HELD). Clobbers `r1`.
fn leave(asm: &mut Assembler, spec: &Spec, value: u32) {
    if spec.is_parallel() {
        cpu_lock::leave(asm, value);
    } else {
        asm.store_imm(Size::W, R7, trusted::LOCK as i16, value as i32);
    }
}

/// Turns the verdict in `r0` into action, and counts it.
fn verdict(
    asm: &mut Assembler,
    spec: &Spec,
    handler: &Handler,
    done: Label,
    alleged: Label,
    finish: Label,
    observe: bool,
) {
    asm.bind(done);
    recover(asm);
    asm.store(Size::W, R9, VERDICT, R0);
    log::emit(asm, spec, handler.module);
    if observe {
        observe::ran(asm, fuel(handler));
    }
    if let Some(terms) = handler.share {
        share::charge(asm, share::AccountAt::OWN, share::Price::Locked(terms));
    }
    asm.load(Size::W, R0, R9, VERDICT);
    let reply = asm.label();
    let delivery = asm.label();
    let delivers = spec.layout.endpoint_slots > 0;
    if handler.may_reply {
        asm.jump32_if_imm(op::JEQ, R0, Verdict::Reply as i32, reply);
    }
    if delivers {
        asm.jump32_if_imm(op::JEQ, R0, Verdict::Deliver as i32, delivery);
    }
    let changed = asm.label();
    for verdict in Verdict::ALL {
        let (fate, action) = match verdict {
            Verdict::Reply => continue,
            Verdict::Deliver if delivers => continue,
            Verdict::Consume => (Count::Consumed, Action::Drop),
            Verdict::Deliver => (Count::DroppedNoEndpoint, Action::Drop),
            Verdict::Pass | Verdict::Abort => (Count::Passed, Action::Pass),
            Verdict::Forward => (Count::DroppedNoNextHop, Action::Drop),
            Verdict::Drop => (Count::DroppedHandler, Action::Drop),
        };
        let next = asm.label();
        asm.jump32_if_imm(op::JNE, R0, verdict as i32, next);
        unlock(asm, spec);
        let note = match verdict {
            Verdict::Abort => Count::AbortVoluntary,
            _ => Count::Committed,
        };
        end_with(asm, fate, Some(note), action);
        if action == Action::Pass {
            asm.load(Size::W, R1, R9, context::DIRTY);
            asm.jump_if_imm(op::JNE, R1, 0, changed);
        }
        asm.jump(finish);
        asm.bind(next);
    }
    trap_here(asm, handler, Cause::BadVerdict, alleged);

    asm.bind(changed);
    asm.store_imm(Size::W, R9, END_FATE, Count::DroppedChanged as i32);
    set_end(asm, Action::Drop);
    asm.jump(finish);

    if delivers {
        asm.bind(delivery);
        unlock(asm, spec);
        endpoint::emit(asm, spec, finish);
    }
    if handler.may_reply {
        asm.bind(reply);
        unlock(asm, spec);
        reply::emit(asm, spec.queue.packet, handler, finish, observe);
    }
}

/// What a handler may use, if it counts that.
fn fuel(handler: &Handler) -> Option<u64> {
    promote::keeps_time(handler.module).then_some(handler.budget.fuel)
}

/// Context: the verdict. The verifier knows nothing of what lies there, so it does not
/// have to tell apart the ways through the handler by the number that each returns.
const VERDICT: i16 = context::SCRATCH + 40;
/// Context: the fate to count; see [`end_with`].
const END_FATE: i16 = context::SCRATCH;
/// Context: the note to count, 0 for none.
const END_NOTE: i16 = context::SCRATCH + 4;
/// Context: the program's return code.
const END_CODE: i16 = context::SCRATCH + 8;

/// Says how the program will end, for `finish`. In the context, so that the
/// verifier walks the end once and not once for each way to it.
fn end_with(asm: &mut Assembler, fate: Count, note: Option<Count>, action: Action) {
    asm.store_imm(Size::W, R9, END_FATE, fate as i32);
    asm.store_imm(Size::W, R9, END_NOTE, note.map_or(0, |note| note as i32));
    set_end(asm, action);
}

/// Says what becomes of the frame.
fn set_end(asm: &mut Assembler, action: Action) {
    asm.store_imm(Size::W, R9, END_CODE, action.code(asm.hook()));
}

/// Counts and ends as [`end_with`] said.
fn finish_here(asm: &mut Assembler, handler: &Handler, finish: Label, observe: bool) {
    asm.bind(finish);
    let out = asm.label();
    parts::find_row(asm, out);
    asm.load(Size::W, R3, R9, END_FATE);
    add_one(asm, out);
    asm.load(Size::W, R3, R9, END_NOTE);
    asm.jump_if_imm(op::JEQ, R3, 0, out);
    add_one(asm, out);
    asm.bind(out);
    if observe {
        let note = Note::end(Word::At(END_FATE));
        let beside = Word::At(END_NOTE);
        observe::note(asm, Note { beside, ..note });
    }
    timed::end(asm, handler.budget.ns);
    resize::give_back(asm, handler.module, END_CODE, Action::Pass);
    asm.load(Size::W, R0, R9, END_CODE);
    asm.exit();
}

/// Adds 1 to counter number `r3` of the row in `r0`. Clobbers `r1`-`r3`.
fn add_one(asm: &mut Assembler, out: Label) {
    asm.jump_if_imm(op::JGE, R3, ashway_abi::count::KERNEL_WORDS as i32, out);
    asm.alu_imm(op::LSH, R3, 3);
    asm.mov(R2, R0);
    asm.alu(op::ADD, R2, R3);
    asm.load(Size::D, R1, R2, 0);
    asm.alu_imm(op::ADD, R1, 1);
    asm.store(Size::D, R2, 0, R1);
}

/// An involuntary abort: record it for the owner, free the instance, and do
/// what the path's `on_fault` says, unless the message is spoiled.
fn fault(
    asm: &mut Assembler,
    spec: &Spec,
    handler: &Handler,
    [trap, alleged]: [Label; 2],
    finish: Label,
    observe: bool,
) {
    asm.bind(trap);
    recover(asm);
    log::emit(asm, spec, handler.module);
    if observe {
        observe::ran(asm, fuel(handler));
    }
    if let Some(terms) = handler.share {
        share::charge(asm, share::AccountAt::OWN, share::Price::Locked(terms));
    }
    asm.bind(alleged);
    let keep = asm.label();
    let [lost, written] = [(); 2].map(|()| asm.label());
    if spec.is_parallel() {
        cpu_lock::win(asm, lost);
    }
    // Not whole until the cause is there.
    asm.store_imm(Size::W, R7, trusted::FAULT_CAUSE as i16, 0);
    asm.load(Size::W, R1, R7, trusted::VERSION as i16);
    asm.store(Size::W, R7, trusted::FAULT_VERSION as i16, R1);
    asm.load(Size::W, R1, R9, context::AT);
    asm.store(Size::W, R7, trusted::FAULT_AT as i16, R1);
    asm.load(Size::W, R1, R9, context::ROW);
    asm.store(Size::W, R7, trusted::FAULT_ROW as i16, R1);
    asm.mov_imm(R1, 1);
    asm.atomic(Atomic::Add, Size::W, R7, trusted::FAULT_COUNT as i16, R1);
    asm.load(Size::W, R1, R9, context::CAUSE);
    asm.store(Size::W, R7, trusted::FAULT_CAUSE as i16, R1);
    keep::emit(asm, spec);
    if spec.is_parallel() {
        asm.jump(written);
        asm.bind(lost);
        asm.mov_imm(R1, 1);
        asm.atomic(Atomic::Add, Size::W, R7, trusted::FAULT_COUNT as i16, R1);
        unlock(asm, spec);
        asm.bind(written);
    }
    end_with(asm, Count::AbortedDirty, None, Action::Drop);
    asm.load(Size::W, R2, R9, context::CAUSE);
    asm.alu_imm(op::ADD, R2, Count::AbortVoluntary as i32);
    asm.store(Size::W, R9, END_NOTE, R2);
    asm.load(Size::W, R1, R9, context::DIRTY);
    asm.jump_if_imm(op::JNE, R1, 0, finish);
    asm.store_imm(Size::W, R9, END_FATE, Count::DroppedFault as i32);
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, flag::ON_FAULT_DROP as i32);
    asm.jump_if_imm(op::JNE, R1, 0, keep);
    asm.store_imm(Size::W, R9, END_FATE, Count::Passed as i32);
    set_end(asm, Action::Pass);
    asm.bind(keep);
    asm.jump(finish);
}
