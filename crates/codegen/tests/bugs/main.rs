//! Each seeded bug turns a test red.
//!
//! Built only with `--cfg ashway_bugs` (`cargo xtask bugs`). The tests that
//! are to turn red are the ones that guard the code every day, in a binary of
//! their own; each is run once without and once with the bug.

#![cfg(ashway_bugs)]
#![allow(clippy::unwrap_used, reason = "all of this is a test")]

#[path = "../check/main.rs"]
mod check;
#[path = "../../../demux/tests/demux/main.rs"]
mod demux;
#[path = "../demux_program/main.rs"]
mod demux_program;
#[path = "../flow.rs"]
mod flow;
#[path = "../forward/main.rs"]
mod forward;
#[path = "../moving.rs"]
mod moving;
#[path = "../normalise.rs"]
mod normalise;
#[path = "../normalise_bounded.rs"]
mod normalise_bounded;
#[path = "../parallel.rs"]
mod parallel;
#[path = "../per_cpu.rs"]
mod per_cpu;
#[path = "../pipe/main.rs"]
mod pipe;
#[path = "../promote/main.rs"]
mod promote;
#[path = "../rings.rs"]
mod rings;
#[path = "../rules/main.rs"]
mod rules;
#[path = "../share.rs"]
mod share;
#[path = "../tcx.rs"]
mod tcx;
#[path = "../timed.rs"]
mod timed;
#[path = "../wait.rs"]
mod wait;

use ashway_codegen::bug::Bug;
use ashway_codegen::pipe::Isa;
use ashway_rig::skip;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The test that has to turn red. Those over a table of rules where there is
/// one; they need no root.
const fn guard(bug: Bug) -> &'static str {
    use Bug as B;
    match bug {
        B::ShiftUnsigned
        | B::RotateShort
        | B::DivideByZeroAllowed
        | B::CompareSigned
        | B::TrapPlace => "rules::integer::i32_operators_with_a_constant",
        B::CompareNotMirrored | B::OverflowAllowed => {
            "rules::integer::i64_operators_with_a_constant"
        }
        B::WrapNothing | B::ExtendShort | B::CountShort => {
            "rules::integer::operators_of_one_operand"
        }
        B::BoundsWrap | B::BoundsOffByOne | B::BoundsOfMaximum | B::LoadUnsigned => {
            "rules::access::every_access_has_its_bounds_in_an_arena"
        }
        B::GrowFurther => "promote::memory::memory_grows_to_its_maximum",
        B::CopyForward => "promote::memory::memory_copy_moves_any_overlap",
        B::BulkOffByOne => "promote::memory::bulk_operations_trap_before_they_begin",
        B::StateUnchecked => "check::twice::a_copy_out_of_the_state_region_keeps_to_it_by_itself",
        B::MessageOfFrame | B::ByteOrder | B::DirtyNotMarked => {
            "rules::message::every_call_has_its_bounds_at_any_offset"
        }
        B::CopyStopsInside => "promote::messages::time_is_over_between_host_calls_and_not_inside",
        B::FactsNotMet => "promote::messages::a_check_on_one_way_is_not_taken_for_one_on_the_other",
        B::LogUnbounded => "promote::log::more_lines_than_there_is_room_for_change_nothing_else",
        B::FactsOutliveResize => "promote::resize::what_was_checked_before_is_checked_again",
        B::ResizeUnbounded => "promote::resize::nobody_gets_more_than_is_declared",
        B::ResizeKeepsBytes => "promote::resize::what_a_message_gains_is_zero",
        B::UnalignedAllowed => "rules::atomic::every_atomic_access_has_its_meaning_and_bounds",
        B::SelectOther => "promote::control::select_takes_any_operands",
        B::TableOffByOne => "promote::control::br_table_finds_every_target",
        B::CallKeepsRegisters => "promote::calls::calls_in_loops_return_where_they_came_from",
        B::JoinNotSettled => "promote::control::values_pass_through_blocks_and_branches",
        B::LaunderChanges => "promote::control::loops_nest",
        B::StackUnchecked => "promote::recursion::the_call_stack_has_an_end_at_a_place",
        B::WordOffByOne => "promote::tables::entries_outside_trap_and_change_nothing",
        B::CallAnyType => "promote::tables::calls_follow_what_was_stored",
        B::LoadTimeIgnored => "promote::refusals::what_would_load_too_slowly_is_refused_by_name",
        B::Speculated => "normalise::no_processor_guesses_an_address_beyond_the_message",
        B::LoopFree => "normalise::a_loop_pays_for_its_own_turn_and_not_for_inner_loops",
        B::EntryFree => "normalise::functions_that_run_often_pay_at_their_entry",
        B::BoundedLoopFree => "normalise_bounded::a_loop_without_its_charge_is_noticed",
        B::BoundedEntryFree => "normalise_bounded::a_function_without_its_charge_is_noticed",
        B::BulkFree => "normalise::bulk_operations_are_charged_by_length",
        B::ChargeForgotten | B::RefillWhole => {
            "promote::control::fuel_runs_out_at_the_same_turn_whatever_the_slices"
        }
        B::ClockIgnored => "promote::control::time_runs_out_at_the_end_of_a_slice",
        B::GraceForgotten => "promote::time::a_cpu_that_is_taken_away_once_stops_nobody",
        B::GraceForEver => "promote::time::one_that_is_taken_away_again_does",
        B::SlowIgnored => "promote::control::behind_a_slow_stretch_comes_a_short_slice",
        // A kernel would show it by time only; the checker sees what is missing.
        B::BulkTickFree | B::ReturnTickFree => {
            "check::accepts::every_handler_is_accepted_with_the_small_program_around_it"
        }
        B::DemuxGuardShared | B::DemuxEmitMaskDropped | B::DemuxEmitOrderInverted => {
            "demux_program::interpreter::the_program_decides_as_the_table_does"
        }
        B::DemuxEmitGoneStays => "demux_program::interpreter::entries_go_without_a_program",
        B::DemuxSpareMaskDropped | B::DemuxSpareOrderIgnored => {
            "demux_program::interpreter::shapes_come_as_data"
        }
        B::OrderIgnored => "flow::who_waits_for_nobody_runs_at_once",
        B::FlowOtherHash => "flow::a_message_that_crosses_holds_up_its_own_flow",
        B::FlowDrainsPath => "flow::a_flow_that_floods_is_dropped_alone",
        B::SharedRingMarked => "rings::interfaces_that_share_a_ring_keep_their_marks",
        B::DrainQueues | B::DrainOvertakes => {
            "forward::interpreter::a_flood_does_not_keep_a_path_in_the_user_tier"
        }
        B::FirstCpuAlone => "per_cpu::a_message_meets_the_instance_of_its_cpu",
        B::WantedIgnored => "share::a_lock_that_the_worker_wants_is_left_alone",
        B::StackKept => "promote::recursion::what_is_stopped_gives_its_stack_back",
        B::OneStack => "parallel::each_cpu_has_a_stack_of_its_own",
        B::LockOfAnotherCpu => "parallel::an_activation_takes_the_lock_of_its_cpu",
        B::FaultOfTwo => "parallel::one_of_two_faults_is_written_down",
        B::WaitsNever => "wait::a_short_wait_ends_in_the_kernel_tier",
        B::WaitsForEver => "wait::who_waits_in_vain_goes_to_the_user_tier",
        B::WaitsForWorker => "wait::nobody_waits_for_the_worker",
        B::WaitIsTimed => "wait::what_is_waited_is_nobodys_time",
        B::ShareNeverRefills | B::ShareNeverEmpties => {
            "share::goodput_does_not_fall_as_the_load_rises"
        }
        B::SegmentWhole => "tcx::many_messages_behind_one_header_cross_with_their_size",
        B::ChainCut => "tcx::a_long_message_lies_whole_over_several_slots_whatever_its_pieces",
        B::FragsUnseen => "tcx::a_frame_in_several_buffers_crosses_whole",
        B::ChainOneSlot => "tcx::a_long_message_has_room_for_all_of_it_or_is_dropped_once",
        B::TagForgotten => "tcx::a_tag_beside_the_frame_lies_in_front_of_what_waits",
        B::MarkUnseen => "moving::tcx_leaves_alone_what_is_marked",
        B::PieceAlone => "tcx::a_message_in_pieces_is_one_piece_to_its_handler",
        B::TimedForOne => "timed::the_sum_is_that_of_all_messages",
        B::ShareFlickers => "share::it_does_not_change_with_every_message",
        B::NumberForgotten => "share::a_path_waits_for_its_own_messages_alone",
        B::PathTakesRing | B::RelayTakesRing => "share::no_path_takes_what_another_needs",
        B::ShareTakesRing | B::ShareUncounted => "share::a_flood_ends_and_nothing_overtakes",
        B::ShareDrainsAtOnce => "share::a_flood_in_lots_has_no_less_done_than_a_lower_load",
        B::RelayAccountForEach => "share::both_directions_of_a_relay_have_one_account",
        B::RelayChargeStored => "share::a_relay_is_charged_by_atomic_instructions_alone",
        B::RelayAlwaysAsked => "share::a_relay_without_a_share_does_not_look_at_the_clock",
        B::ShareForgotten => "share::who_waits_for_order_behind_a_flood_has_no_more_room",
        B::PipeNarrowAnything => "pipe::user::random_functions_mean_what_wasm_says_on_every_word",
        B::PipeLanesTailCounts
        | B::PipeLanesTailSwapped
        | B::PipeOrderTailTaken
        | B::PipeFoldShort
        | B::PipeAdlerWeights
        | B::PipeCipherRounds
        | B::PipeShiftUnmasked
        | B::PipeWideBelow
        | B::PipeCountTrailing
        | B::PipeOrderCountWide
        | B::PipePinAny
        | B::PipePortableTail => "pipe::same::every_list_gives_the_same_in_every_form",
        B::PipeTailWhole => "pipe::evil::evil_functions_touch_no_byte_outside_of_their_data",
        B::PipeSwapAnyOrder => "pipe::user::a_byteswap_is_known_by_what_it_does",
        B::PipePlanDropsLast => "pipe::plan::a_list_in_several_loops_means_the_same",
        B::PipeKernelCarries | B::PipeKernelTailCounts | B::PipeKernelTailSwapped => {
            "pipe::kernel::our_interpreter_copies_as_the_list_means"
        }
        B::PipeKernelRegistersLost => "promote::pipes::registers_last",
        B::PipeKernelOutside => "promote::pipes::a_run_ends_with_the_message",
        B::PipeKernelTickFree => "check::accepts::runs_of_pipes_are_accepted",
        B::PipeKernelEndKept => "promote::pipes::what_is_written_reaches_the_message",
    }
}

/// The same for those of the checker.
const fn guard_of_check(bug: ashway_check::bug::Bug) -> &'static str {
    use ashway_check::bug::Bug as B;
    match bug {
        B::CheckNoBase => "check::refuses::access::an_address_that_is_not_cast",
        B::CheckNoContext => "check::refuses::access::a_call_stack_without_a_bound",
        B::CheckNoPacketEnd => "check::refuses::access::a_packet_access_that_is_not_compared",
        B::CheckAnyHelper => "check::refuses::values::another_helper",
        B::CheckNoCharge => "check::refuses::fuel::a_loop_without_a_charge",
        B::CheckNoTick => "check::refuses::fuel::a_tick_that_is_left_out",
        B::CheckFuelGrows => "check::refuses::fuel::a_refill_that_gives_too_much",
        B::CheckGraceTwice => "check::refuses::fuel::a_grace_that_is_used_twice",
        B::CheckUnasked => "check::refuses::fuel::a_subprogram_that_is_not_believed",
        B::CheckAnyLock => "parallel::the_lock_of_another_cpu_is_refused",
        B::CheckNoLock => "check::refuses::trusted::a_lock_that_is_kept_at_the_end",
        B::CheckPointerLeak => "check::refuses::values::a_pointer_that_gets_out",
    }
}

/// The same for those of the demux table.
const fn guard_of_demux(bug: ashway_demux::bug::Bug) -> &'static str {
    use ashway_demux::bug::Bug as B;
    match bug {
        B::DemuxMaskDropped
        | B::DemuxOrderInverted
        | B::DemuxEntryStays
        | B::DemuxChangeForgets => "demux::table::finds_what_trying_all_filters_finds",
        B::DemuxWiderWins => "demux::table::the_narrowest_has_what_several_filters_have",
        B::DemuxMeetingMissed => "demux::table::equals_conflict_where_they_meet_and_nowhere_else",
        B::DemuxJoinOneSide => "demux::join::tests_without_a_text_mean_what_their_text_says",
        B::DemuxLayerUnasked => "demux_program::interpreter::the_program_decides_as_the_table_does",
    }
}

/// The name of every bug, and its guard.
fn bugs() -> Vec<(String, &'static str)> {
    let check = ashway_check::bug::Bug::ALL.iter();
    let check = check.map(|bug| (format!("{bug:?}"), guard_of_check(*bug)));
    let codegen = Bug::ALL.iter().map(|bug| (format!("{bug:?}"), guard(*bug)));
    let demux = ashway_demux::bug::Bug::ALL.iter();
    let demux = demux.map(|bug| (format!("{bug:?}"), guard_of_demux(*bug)));
    codegen.chain(check).chain(demux).collect()
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colour {
    Green,
    Red,
}

/// Runs one test of this binary in a process of its own.
///
/// # Panics
///
/// If there is no such test.
fn run(test: &str, bug: Option<&str>) -> Colour {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env_remove("ASHWAY_BUG");
    // Fewer random lists of pipes than every day: each bug shows in the first few.
    command.env("PIPE_CASES", "3000");
    if let Some(bug) = bug {
        command.env("ASHWAY_BUG", bug);
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "no test `{test}`");
    if output.status.success() {
        Colour::Green
    } else {
        Colour::Red
    }
}

#[test]
fn each_bug_turns_its_test_red() {
    // Guards first, each once, then bugs; two at a time.
    let bugs = bugs();
    let guards: BTreeSet<&str> = bugs.iter().map(|(_, guard)| *guard).collect();
    // `cargo xtask avx512 --bug NAME` shows it elsewhere.
    let wide = pipe::cpus().iter().any(|cpu| cpu.isa == Isa::Avx512);
    if !wide {
        skip::skip_part(skip::Cpu::Avx512);
    }
    let here = |bug: &str| bug != format!("{:?}", Bug::PipeWideBelow) || wide;
    let without = guards.into_iter().map(|test| (None, test));
    let with = bugs
        .iter()
        .filter(|(bug, _)| here(bug))
        .map(|(bug, guard)| (Some(bug.as_str()), *guard));
    let runs: Vec<(Option<&str>, &str)> = without.chain(with).collect();
    let next = Mutex::new(runs.iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let run_next = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((bug, test)) = run_next else { break };
                    let begun = Instant::now();
                    let colour = run(test, *bug);
                    let took = begun.elapsed();
                    done.lock().unwrap().push((*bug, *test, colour, took));
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    let mut failed = 0;
    for (bug, test, colour, took) in &done {
        let expected = if bug.is_some() {
            Colour::Red
        } else {
            Colour::Green
        };
        let what = bug.unwrap_or("(no bug)");
        let verdict = if *colour == expected { "" } else { "  WRONG" };
        println!(
            "{what:<20} {:<5} {:>5.1} s  {test}{verdict}",
            format!("{colour:?}").to_lowercase(),
            took.as_secs_f64()
        );
        failed += usize::from(*colour != expected);
    }
    println!("{} passed, {failed} failed", done.len() - failed);
    assert_eq!(failed, 0);
}
