//! `ashway handler invoke`: one exported function, called with arguments.

use std::path::PathBuf;

use ashway_abi::Cause;
use ashway_codegen::normalise::{Module, Profile};
use ashway_trial::{Engine, Setup, Trial};
use clap::Args;
use serde_json::{Map, Value, json};

use super::file;
use super::tier::{self, Tier};
use crate::face::Face;
use crate::failure::{Exit, Failure};

/// Call one exported function, without any packet
///
/// Any exported function of integers, not only handlers. Arguments are decimal,
/// hexadecimal (0x...) or negative numbers; put `--` before the first negative
/// one. A trap is exit code 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler invoke math.wasm gcd 48 36
  ashway handler invoke math.wasm add --tier both -- -1 0x7fffffff
  ashway handler invoke math.wasm divide 1 0 -j

JSON (-j):
  { \"function\": \"gcd\", \"type\": \"(i32, i32) -> (i32)\",
    \"user\": { \"results\": [ { \"type\": \"i32\", \"value\": 12, \"bits\": \"0xc\" } ],
              \"stopped\": null }, \"agree\": true }
  `agree` is false, too, if the time ran out, so that nothing can be compared.
  A stop is { \"cause\", \"offset\", \"function\", \"file\", \"line\" }; `results` is then null.")]
pub(crate) struct Invoke {
    /// The module (Wasm)
    file: PathBuf,
    /// The exported function
    export: String,
    /// Its arguments
    #[arg(value_name = "ARG")]
    args: Vec<String>,
    /// Where to run it; several are compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "user")]
    tier: Vec<Tier>,
}

impl Invoke {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        let bytes = file::read(&self.file)?;
        let mut module = file::module(&self.file, &bytes, Profile::Library)?;
        let function =
            file::export(&module, &self.export).map_err(|failure| failure.in_file(&self.file))?;
        let ty = module.functions[function as usize].type_index;
        let ty = module.types[ty as usize].clone();
        let params: Vec<String> = ty.params().iter().map(ToString::to_string).collect();
        let results: Vec<String> = ty.results().iter().map(ToString::to_string).collect();
        let shape = format!("({}) -> ({})", params.join(", "), results.join(", "));
        let args = self.arguments(&params, &shape)?;
        module.add_invoker(function).map_err(|error| {
            Failure::new(Exit::Usage, format!("`{}` cannot be called", self.export))
                .because(&error)
                .in_file(&self.file)
        })?;

        let mut ends = Vec::new();
        for engine in tier::engines(&self.tier) {
            ends.push((engine, call(&module, engine, function, &args)?));
        }
        // Where the time ran out is the clock's choice: nothing to compare.
        let out_of_time = ends.iter().find(|(_, end)| {
            let stopped = end.result.as_ref().err();
            stopped.is_some_and(|stopped| stopped.cause == Cause::Time)
        });
        let out_of_time = out_of_time.map(|(engine, _)| engine.name());
        let agree = ends.windows(2).all(|pair| {
            let [(engine, one), (other_engine, other)] = pair else {
                return true;
            };
            let engines = [*engine, *other_engine];
            ashway_trial::same_end(engines, &one.result, &other.result)
                && (&one.guest, &one.state) == (&other.guest, &other.state)
        });
        let agree = agree && out_of_time.is_none();
        let stopped = ends.iter().any(|(_, end)| end.result.is_err());

        let mut document = Map::new();
        document.insert("function".into(), json!(self.export));
        document.insert("type".into(), json!(shape));
        for (engine, end) in &ends {
            document.insert(engine.name().into(), end.json(&module, &results));
        }
        document.insert("agree".into(), json!(agree));
        face.show(&document.into(), || {
            let mut text = String::new();
            for (engine, end) in &ends {
                let head = match ends.len() {
                    1 => String::new(),
                    _ => format!("{:<13}", format!("{}:", engine.name())),
                };
                text += &[&head, &*end.text(&module, &results), "\n"].concat();
            }
            text + &match (ends.len(), agree, out_of_time) {
                (1, ..) => String::new(),
                (_, true, _) => "all agree, memory included\n".to_owned(),
                (_, false, Some(tier)) => {
                    format!("not compared: the time ran out in tier `{tier}`\n")
                }
                (_, false, None) => "they DIFFER: please report it, with the file\n".to_owned(),
            }
        })?;
        Ok(u8::from(stopped || !agree))
    }

    /// The arguments as bits.
    fn arguments(&self, params: &[String], shape: &str) -> Result<Vec<u64>, Failure> {
        let usage = |error: String| {
            Failure::new(Exit::Usage, error).hint(format!("`{}` has type {shape}", self.export))
        };
        if self.args.len() != params.len() {
            return Err(usage(format!(
                "{} given, `{}` takes {}",
                file::count(self.args.len(), "argument"),
                self.export,
                params.len()
            )));
        }
        let mut all = Vec::new();
        for (number, (text, ty)) in (1..).zip(self.args.iter().zip(params)) {
            let bits = integer(text, ty).map_err(|because| {
                usage(format!("argument {number} is no {ty}")).because(&because)
            })?;
            all.push(bits);
        }
        Ok(all)
    }
}

/// What a call came to.
#[derive(Debug)]
struct End {
    result: Result<Vec<u64>, ashway_handler::Stopped>,
    guest: Vec<u8>,
    state: Vec<u8>,
}

fn call(module: &Module<'_>, engine: Engine, function: u32, args: &[u64]) -> Result<End, Failure> {
    let refused = |error| tier::failure_of_choice(module, engine, &error);
    let mut trial = Trial::new(module, engine, &Setup::default()).map_err(refused)?;
    let result = trial.invoke(function, args).map_err(refused)?;
    Ok(End {
        result,
        guest: trial.guest(),
        state: trial.state(),
    })
}

impl End {
    fn text(&self, module: &Module<'_>, types: &[String]) -> String {
        match &self.result {
            Err(stopped) => format!(
                "stopped: {} at {}",
                stopped.cause.name(),
                file::place(module, stopped.at)
            ),
            Ok(values) if values.is_empty() => "returned".to_owned(),
            Ok(values) => {
                let words = values
                    .iter()
                    .zip(types)
                    .map(|(bits, ty)| format!("{ty} {} ({bits:#x})", signed(*bits, ty)));
                words.collect::<Vec<_>>().join(", ")
            }
        }
    }

    fn json(&self, module: &Module<'_>, types: &[String]) -> Value {
        let results = self.result.as_ref().ok().map(|values| {
            let values = values.iter().zip(types).map(|(bits, ty)| {
                json!({ "type": ty, "value": signed(*bits, ty), "bits": format!("{bits:#x}") })
            });
            values.collect::<Vec<_>>()
        });
        let stopped = self.result.as_ref().err();
        json!({
            "results": results,
            "stopped": stopped.map(|stopped| file::stopped_json(module, *stopped)),
        })
    }
}

/// The bits as a signed number; of other types than integers as they are.
fn signed(bits: u64, ty: &str) -> i64 {
    if ty == "i32" {
        i64::from(bits as u32 as i32)
    } else {
        bits as i64
    }
}

/// An argument's bits: signed or unsigned, whatever fits the type.
fn integer(text: &str, ty: &str) -> Result<u64, String> {
    let (least, most) = match ty {
        "i32" => (i128::from(i32::MIN), i128::from(u32::MAX)),
        "i64" => (i128::from(i64::MIN), i128::from(u64::MAX)),
        _ => return Err("only integers can be given here".into()),
    };
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let digits = digits.replace('_', "");
    let (digits, radix) = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hex) => (hex, 16),
        None => (&digits[..], 10),
    };
    // A second sign would be taken for the number's own.
    let plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    let value = plain
        .then(|| i128::from_str_radix(digits, radix).ok())
        .flatten();
    let value = value.ok_or_else(|| format!("`{text}` is no whole number"))?;
    let value = if negative { -value } else { value };
    if value < least || value > most {
        return Err(format!("`{text}` is not between {least} and {most}"));
    }
    Ok(if ty == "i32" {
        u64::from(value as u32)
    } else {
        value as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_every_form_that_fits() {
        assert_eq!(integer("-1", "i32"), Ok(0xffff_ffff));
        assert_eq!(integer("4294967295", "i32"), Ok(0xffff_ffff));
        assert_eq!(integer("-0x80000000", "i32"), Ok(0x8000_0000));
        assert_eq!(integer("1_000", "i64"), Ok(1000));
        assert_eq!(integer("-1", "i64"), Ok(u64::MAX));
        assert_eq!(integer("0xffffffffffffffff", "i64"), Ok(u64::MAX));
        for (text, ty) in [
            ("4294967296", "i32"),
            ("-2147483649", "i32"),
            ("18446744073709551616", "i64"),
            ("--1", "i32"),
            ("-+1", "i32"),
            ("", "i32"),
            ("1.5", "i64"),
            ("0x", "i64"),
            ("1", "f32"),
        ] {
            assert!(integer(text, ty).is_err(), "{text} {ty}");
        }
    }
}
