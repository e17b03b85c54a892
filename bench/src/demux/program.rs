//! The programs and their maps; filters, keys and frames of the paths.

use std::collections::HashMap;

use Reg::{R0, R1, R2, R3, R4, R10};
use anyhow::{Result, anyhow, ensure};
use ashway_abi::{Leaf, context, leaf};
use ashway_check::bpf::{Assembler, Image, MapRef, Reg, Size, helper, op};
use ashway_codegen::demux::compiled::{self, Entries, FEW};
use ashway_codegen::demux::emit::{self, Spec};
use ashway_codegen::demux::spare::MAP as SPARES;
use ashway_codegen::entry::Packet;
use ashway_demux::{self as demux, Table, spare};
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun};

/// The sender of path 0; the others follow.
const FIRST: u32 = 0x0a00_0000;
pub(super) const PORT: u16 = 7777;

/// Bytes of the key: address, port, two of padding.
pub(super) const KEY_BYTES: u32 = 8;

/// The map of the bare program, which is no shape's.
const BARE: MapRef = MapRef::Shape(SPARES - 1);

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// Any, with equal chances.
    Uniform,
    /// Always the same.
    Hot,
}

impl Case {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Hot => "hot",
        }
    }
}

/// Loaded over maps with the same entries.
pub(super) struct Programs {
    demux: Program,
    bare: Program,
    floor: Program,
    paths: u32,
    frame: Vec<u8>,
}

impl Programs {
    pub(super) fn load(paths: u32, case: Case) -> Result<Self> {
        let drawn = match case {
            Case::Uniform => paths,
            Case::Hot => 1,
        };
        let table = table(paths)?;
        let leaf = |path| Leaf {
            tag: path,
            ..Leaf::default()
        };
        let shapes = compiled::compile_open(&table, FEW, leaf);
        let cpus = possible_cpus()? as u32;
        let mut maps = Maps {
            context: Map::create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1))?,
            hits: Map::create(&MapSpec::array(
                "hits",
                compiled::hits_bytes(&shapes) as u32,
                1,
            ))?,
            shapes: HashMap::new(),
        };
        for (one, entries) in shapes.iter().zip(table.shapes()) {
            if let Some(number) = one.entries.map() {
                let bytes = one.shape.key_bytes() as u32;
                // As constants they are in the program.
                let is_hash = matches!(one.entries, Entries::Hash(_));
                let entries = entries.iter().filter(|_| is_hash);
                let entries = entries.map(|(key, path)| (key.to_vec(), path));
                let map = filled(bytes, paths, entries.collect())?;
                maps.shapes.insert(MapRef::Shape(number), map);
            }
        }
        let entries = (0..paths).map(|path| (key(path), path)).collect();
        maps.shapes.insert(BARE, filled(KEY_BYTES, paths, entries)?);
        let spares = filled(spare::KEY_BYTES as u32, 1, Vec::new())?;
        maps.shapes.insert(MapRef::Shape(SPARES), spares);

        let mut drawing = Assembler::new();
        draw(&mut drawing, drawn);
        let demux = emit::program_after(
            drawing,
            &Spec {
                shapes: &shapes,
                spares: Some(compiled::spares_at(&shapes)),
                cpus,
                packet: Packet::Pointers,
            },
        );
        Ok(Self {
            demux: maps.load("ashway_demux", &demux)?,
            bare: maps.load("ashway_bare", &bare(drawn))?,
            floor: maps.load("ashway_floor", &floor(drawn))?,
            paths,
            frame: frame_of(0).to_vec(),
        })
    }

    /// Demux, bare, floor.
    pub(super) fn all(&self) -> [&Program; 3] {
        [&self.demux, &self.bare, &self.floor]
    }

    /// The program that the entry program begins with.
    pub(super) fn demux(&self) -> &Program {
        &self.demux
    }

    /// Both find a path that is there, and not always the same.
    pub(super) fn check(&self) -> Result<()> {
        for program in [&self.demux, &self.bare] {
            for _ in 0..100 {
                let result = program.test_run(&TestRun {
                    packet: &self.frame,
                    context: None,
                    repeat: 1,
                })?;
                let address = u32::from_be_bytes(result.packet[26..30].try_into()?);
                ensure!(
                    result.retval == address - FIRST && result.retval < self.paths,
                    "path {} was found for sender {address:#x}",
                    result.retval
                );
            }
        }
        Ok(())
    }

    /// The kernel's own mean, without what a call costs; in whole ns.
    pub(super) fn ns_per_run(&self, program: &Program, repeat: u32) -> Result<f64> {
        let result = program.test_run(&TestRun {
            packet: &self.frame,
            context: None,
            repeat,
        })?;
        Ok(f64::from(result.duration_ns))
    }
}

/// The filter of a path.
pub(super) fn text(path: u32) -> String {
    let address = std::net::Ipv4Addr::from(FIRST + path);
    format!("udp dst port {PORT} and src host {address}")
}

pub(super) fn table(paths: u32) -> Result<Table<u32>> {
    let mut table = Table::default();
    for path in 0..paths {
        let text = text(path);
        let filter = demux::parse(&text).map_err(|error| anyhow!("{text}: {error}"))?;
        table
            .insert(&filter, path)
            .map_err(|error| anyhow!("{error}"))?;
    }
    Ok(table)
}

/// The key as the shape has it.
pub(super) fn key(path: u32) -> Vec<u8> {
    let mut key = (FIRST + path).to_be_bytes().to_vec();
    key.extend(PORT.to_be_bytes());
    key.extend([0; 2]);
    key
}

pub(super) fn filled(key_bytes: u32, room: u32, entries: Vec<(Vec<u8>, u32)>) -> Result<Map> {
    let map = Map::create(&MapSpec::hash(
        "entries",
        key_bytes,
        leaf::BYTES as u32,
        room,
    ))?;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (key, path) in entries {
        keys.extend(key);
        let leaf = Leaf {
            tag: path,
            ..Leaf::default()
        };
        values.extend(leaf.to_bytes());
    }
    map.update_batch(&keys, &values)?;
    Ok(map)
}

/// A plain datagram for a path.
pub(super) fn frame_of(path: u32) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 17;
    frame[26..30].copy_from_slice(&(FIRST + path).to_be_bytes());
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    frame
}

/// Writes the sender of one of `paths` paths, the next of a linear congruential
/// generator (Knuth 1997, §3.3.4), into the packet. `r1` stays.
fn draw(asm: &mut Assembler, paths: u32) {
    let short = asm.label();
    asm.map(R2, MapRef::Context, Some(context::SCRATCH as u32));
    asm.load(Size::D, R3, R2, 0);
    asm.load_imm(R4, 6_364_136_223_846_793_005);
    asm.alu(op::MUL, R3, R4);
    asm.alu_imm(op::ADD, R3, 1_442_695_041);
    asm.store(Size::D, R2, 0, R3);
    asm.alu_imm(op::RSH, R3, 32);
    asm.alu_imm(op::MUL, R3, paths as i32);
    asm.alu_imm(op::RSH, R3, 32);
    asm.alu_imm(op::ADD, R3, FIRST as i32);
    asm.to_be(Size::W, R3);
    asm.load(Size::W, R2, R1, 0);
    asm.load(Size::W, R4, R1, 4);
    asm.mov(R0, R2);
    asm.alu_imm(op::ADD, R0, 42);
    asm.jump_if(op::JGT, R0, R4, short);
    asm.store(Size::W, R2, 26, R3);
    asm.bind(short);
}

/// One look-up; returns the path's number.
fn bare(paths: u32) -> Image {
    const KEY: i16 = -8;
    const PATH: i16 = leaf::SLOT + 4;
    let mut asm = Assembler::new();
    let none = asm.label();
    draw(&mut asm, paths);
    asm.load(Size::W, R2, R1, 0);
    asm.load(Size::W, R4, R1, 4);
    asm.mov(R0, R2);
    asm.alu_imm(op::ADD, R0, 42);
    asm.jump_if(op::JGT, R0, R4, none);
    asm.load(Size::W, R3, R2, 26);
    asm.store(Size::W, R10, KEY, R3);
    asm.load(Size::H, R3, R2, 36);
    asm.store(Size::H, R10, KEY + 4, R3);
    asm.store_imm(Size::H, R10, KEY + 6, 0);
    asm.map(R1, BARE, None);
    asm.mov(R2, R10);
    asm.alu_imm(op::ADD, R2, KEY.into());
    asm.call(helper::MAP_LOOKUP_ELEM);
    asm.jump_if_imm(op::JEQ, R0, 0, none);
    asm.load(Size::W, R0, R0, PATH);
    asm.exit();
    asm.bind(none);
    asm.mov_imm(R0, -1);
    asm.exit();
    asm.finish()
}

fn floor(paths: u32) -> Image {
    let mut asm = Assembler::new();
    draw(&mut asm, paths);
    asm.mov_imm(R0, 0);
    asm.exit();
    asm.finish()
}

/// What the programs name.
pub(super) struct Maps {
    pub(super) context: Map,
    pub(super) hits: Map,
    pub(super) shapes: HashMap<MapRef, Map>,
}

impl Maps {
    pub(super) fn load(&self, name: &str, image: &Image) -> Result<Program> {
        let fixups = image.maps.iter().map(|used| MapFixup {
            insn: used.insn,
            fd: match used.map {
                MapRef::Context => self.context.fd(),
                MapRef::Hits => self.hits.fd(),
                other => self.shapes[&other].fd(),
            },
            value_offset: used.value_offset,
        });
        let fixups: Vec<MapFixup> = fixups.collect();
        Ok(Program::load(&ProgramSpec {
            name,
            kind: ProgramKind::Xdp,
            attach_type: 0,
            insns: &image.insns,
            maps: &fixups,
            btf: None,
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn all_programs_load_and_find_their_paths() {
        if ashway_rig::skip_unless_root() {
            return;
        }
        for paths in [1, 1000] {
            for case in [Case::Uniform, Case::Hot] {
                Programs::load(paths, case).unwrap().check().unwrap();
            }
        }
    }
}
