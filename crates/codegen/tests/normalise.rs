//! Scratch.
use ashway_codegen::normalise::*;
#[test]
fn all() {
    for e in std::fs::read_dir("../../target/handlers").unwrap() {
        let p = e.unwrap().path();
        if p.extension().is_none_or(|x| x != "wasm") { continue; }
        let b = std::fs::read(&p).unwrap();
        let m = normalise(&b, &Limits::default());
        let m = match m { Ok(m) => m, Err(e) => { println!("{p:?} {e}"); continue; } };
        println!("{p:?} sym {:?} exp {:?} bound {:?}", m.symbols, m.exports, static_bound(&m, m.exports[0].1));
        for f in &m.functions { println!("  {:?} {:?}", f.name, m.lines.at(f.at)); for o in &f.code { println!("    {:x} {:?} {:?}", o.at, o.kind, m.lines.at(o.at)); } }
        let enc = encode(&m);
        wasmparser::Validator::new_with_features(wasmparser::WasmFeatures::WASM2 | wasmparser::WasmFeatures::MULTI_MEMORY).validate_all(&enc.wasm).unwrap();
    }
}
