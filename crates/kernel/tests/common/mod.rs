//! What the kernel tests share: namespaces, instructions.

#![allow(
    dead_code,
    reason = "each test file uses a part, and all of them compile this one"
)]

use std::process::Command;

use ashway_kernel::{MapFixup, Program, ProgramKind, ProgramSpec, TestResult, TestRun};

/// Runs `body` in a network namespace of its own, with a veth pair `near` - `far`
/// that is up. The namespace goes when the thread ends.
pub(crate) fn in_namespace(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // SAFETY: a new network namespace for this thread alone touches no
        // memory and no fd.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "unshare: {}", std::io::Error::last_os_error());
        ip("link add near type veth peer name far");
        ip("link set lo up");
        ip("link set near up");
        ip("link set far up");
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in the calling thread's namespace.
pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs a command in the calling thread's namespace.
pub(crate) fn run(program: &str, arguments: &str) {
    let status = Command::new(program)
        .args(arguments.split(' '))
        .status()
        .expect("the tests' tools are installed");
    assert!(status.success(), "{program} {arguments}: {status}");
}

/// An instruction as the little-endian number of its 8 bytes.
pub(crate) const fn insn(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    u64::from_le_bytes([
        opcode,
        dst | (src << 4),
        off.to_le_bytes()[0],
        off.to_le_bytes()[1],
        imm.to_le_bytes()[0],
        imm.to_le_bytes()[1],
        imm.to_le_bytes()[2],
        imm.to_le_bytes()[3],
    ])
}

/// `dst = imm`.
pub(crate) const fn mov(dst: u8, imm: i32) -> u64 {
    insn(0xb7, dst, 0, 0, imm)
}

/// First half of `dst = map`; 0 follows.
pub(crate) const fn load_map(dst: u8) -> u64 {
    insn(0x18, dst, 0, 0, 0)
}

/// A helper call.
pub(crate) const fn call(helper: i32) -> u64 {
    insn(0x85, 0, 0, 0, helper)
}

/// `exit`.
pub(crate) const EXIT: u64 = insn(0x95, 0, 0, 0, 0);

/// `XDP_PASS`.
pub(crate) const XDP_PASS: i32 = 2;

/// A program that only returns a number.
pub(crate) fn returning(name: &str, value: i32) -> Program {
    xdp(name, &[mov(0, value), EXIT], &[])
}

/// Loads an XDP program that the verifier must accept.
pub(crate) fn xdp(name: &str, insns: &[u64], maps: &[MapFixup<'_>]) -> Program {
    Program::load(&ProgramSpec {
        name,
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns,
        maps,
        btf: None,
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", error.log()))
}

/// Runs a program once on a packet of zeros.
pub(crate) fn run_once(program: &Program) -> TestResult {
    let run = TestRun {
        packet: &[0; 64],
        context: None,
        repeat: 1,
    };
    program.test_run(&run).expect("the program runs")
}
