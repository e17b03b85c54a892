//! Throw-away.
use super::harness::*;
use ashway_codegen::promote::MemoryKind;
use std::process::Command;
fn py(code: &str, input: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut c = Command::new("python3").args(["-c", code]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    c.stdin.take().unwrap().write_all(input).unwrap();
    c.wait_with_output().unwrap().stdout
}
#[test]
fn programs() {
    let dir = "/tmp/ashway/promote/c";
    let big = Budget { fuel: 10_000_000, slice: 20_000, ns: 10_000_000_000 };
    let msg: Vec<u8> = (0..1400u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
    for o in ["O1", "O2", "Os", "O3"] {
        for (h, code, messages) in [
            ("crc", "import sys,zlib,struct;d=sys.stdin.buffer.read();sys.stdout.buffer.write(struct.pack('>I',zlib.crc32(d))+d[4:])", vec![msg.clone()]),
            ("sha", "import sys,hashlib;d=sys.stdin.buffer.read();sys.stdout.buffer.write(hashlib.sha256(d).digest()+d[32:])", vec![msg.clone()]),
            ("b64", "import sys,base64;d=sys.stdin.buffer.read();n=len(d)*3//4//3*3;b=base64.b64encode(d[:n]);sys.stdout.buffer.write(b+d[len(b):])", vec![msg.clone()]),
            ("sort", "import sys,struct;d=sys.stdin.buffer.read();n=len(d)//4;v=sorted(struct.unpack('>%dI'%n,d));sys.stdout.buffer.write(struct.pack('>%dI'%n,*v))", vec![msg[..1024].to_vec()]),
            ("kv", "", { let mut a = msg[..57].to_vec(); a[0] = 1; let mut b = a.clone(); b[0] = 0; b[20] = 0; let mut c = b.clone(); c[3] ^= 1; vec![a, b, c] }),
            ("lz4", "", { let mut m = vec![0u8; 1400]; m[1] = 9; m[4] = 0x4f; m[5..9].copy_from_slice(b"abcd"); m[9] = 4; m[11] = 255; m[12] = 200; vec![m] }),
        ] {
            let wasm = std::fs::read(format!("{dir}/{h}.{o}.wasm")).unwrap();
            let ms: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            for kind in [MemoryKind::Arena, MemoryKind::Array] {
                for lim in [false, true] {
                    let p = match promote(&wasm, kind, lim, big) { Ok(p) => p, Err(e) => { println!("{h} {o}: {e}"); continue; } };
                    let i = p.interpret(&ms);
                    let k = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| p.run_in_kernel(&ms)));
                    let Ok(k) = k else { println!("{h} {o} {kind:?} {lim}: REJECTED"); continue };
                    assert!(i == k, "{h} {o} {:?} {:?} {:?}", i[0].result, k[0].result, i.iter().map(|o| o.fuel).collect::<Vec<_>>());
                    if !code.is_empty() { assert_eq!(k[0].message, py(code, &messages[0]), "{h} {o}"); }
                    let (v, ns) = p.time(&messages[0]);
                    println!("{h} {o} {kind:?} mem={lim}: {:?} insns {} verified {v} ns {ns} fuel {} {:x?}", k[0].result, p.image.insns.len(), big.fuel as i64 - k[0].fuel, &k[k.len()-1].message[..6]);
                }
            }
        }
    }
}
#[test]
fn noperfmon() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/handlers/");
    for h in ["counter", "echo", "lock", "even", "runaway", "wild", "divide", "sum", "outside"] {
        let wasm = std::fs::read(format!("{root}{h}.wasm")).unwrap();
        for lim in [false, true] {
        let p = promote(&wasm, MemoryKind::Array, lim, PLENTY).unwrap();
        let k = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| p.run_in_kernel(&[&[0, 0, 0, 2, 5, 6, 7, 8]])));
        match k { Ok(k) => println!("{h} ok {:?} {:?}", k[0].result, p.time(&[0,0,0,2,5,6,7,8])), Err(e) => println!("{h} REJECTED {}", e.downcast_ref::<String>().map_or("", |s| s)) }
        }
    }
    for o in ["O2"] { for h in ["crc", "sha", "b64", "kv", "sort", "lz4"] {
        let wasm = std::fs::read(format!("/tmp/ashway/promote/c/{h}.{o}.wasm")).unwrap();
        for lim in [false, true] {
        let p = promote(&wasm, MemoryKind::Array, lim, PLENTY).unwrap();
        let m = vec![5u8; 1000];
        let k = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| p.run_in_kernel(&[&m])));
        match k { Ok(k) => println!("{h} ok {:?} {:?}", k[0].result, p.time(&m)), Err(e) => println!("{h} REJECTED {}", e.downcast_ref::<String>().map_or("", |s| s).chars().rev().take(600).collect::<String>().chars().rev().collect::<String>()) }
        }
    }}
}
