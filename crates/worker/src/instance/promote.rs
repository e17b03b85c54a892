//! A version of a handler as a program of the kernel tier.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ashway_check::{Around, Shape, check};
use ashway_codegen::instance::{self, Handler, Spec};
use ashway_config::{PathConfig, Share};
use ashway_kernel::Program;

use super::Instance;
use crate::budget::budget;
use crate::dry_run::Blueprint;
use crate::error::{NotPromoted, not_checked, not_loaded, not_translated};
use crate::programs::{self, Maps, NodeMaps, program_name};
use crate::version::Version;

/// What a path's handler may use in the kernel tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// For one message.
    pub(crate) budget: Duration,
    /// For all, if that has a limit.
    pub(crate) share: Option<Share>,
    /// The path's number within the instance, if it has one yet.
    path: Option<usize>,
}

impl Allowance {
    /// What the configuration gives it.
    #[must_use]
    pub fn of(path: &PathConfig) -> Self {
        Self {
            budget: path.budget,
            share: path.share,
            path: None,
        }
    }

    /// The time that it has for one message.
    #[must_use]
    pub(crate) const fn budget(&self) -> Duration {
        self.budget
    }

    /// The same of a path that has this number within the instance: the program is for it
    /// alone, which takes 0.7 ns less for a message.
    #[must_use]
    pub fn numbered(self, local: usize) -> Self {
        Self {
            path: Some(local),
            ..self
        }
    }
}

/// A program that runs the handler in the kernel tier.
#[derive(Debug)]
pub struct Promoted {
    /// The [`Version::id`] of what it runs.
    pub version: u64,
    /// The loaded program.
    pub program: Program,
    /// eBPF instructions.
    pub insns: usize,
    /// Wasm to eBPF, checked.
    pub translate: Duration,
    /// The verifier and the JIT.
    pub load: Duration,
    /// Whether the verifier wanted the second, plainer translation.
    pub second_try: bool,
    /// What runs it over other maps, until it is compared.
    pub blueprint: Option<Box<Blueprint>>,
}

impl Instance {
    /// Translates a version of the handler and loads it for the kernel tier.
    ///
    /// # Errors
    ///
    /// [`NotPromoted`]: why it stays in the user tier.
    pub fn promote(
        &self,
        node: &NodeMaps,
        version: &Version,
        function: &str,
        allowed: Allowance,
    ) -> Result<Promoted, NotPromoted> {
        self.promote_with(node, version, function, allowed, None)
    }

    /// The same for a program that observes, and says what it does into `notes`.
    ///
    /// # Errors
    ///
    /// [`NotPromoted`]: why not.
    pub fn promote_noting(
        &self,
        node: &NodeMaps,
        function: &str,
        allowed: Allowance,
        notes: BorrowedFd<'_>,
    ) -> Result<Program, NotPromoted> {
        let version = self.version();
        let promoted = self.promote_with(node, &version, function, allowed, Some(notes))?;
        Ok(promoted.program)
    }

    fn promote_with(
        &self,
        node: &NodeMaps,
        version: &Version,
        function: &str,
        allowed: Allowance,
        notes: Option<BorrowedFd<'_>>,
    ) -> Result<Promoted, NotPromoted> {
        let queue = self.queue.as_ref().ok_or_else(|| NotPromoted {
            because: "the node has no kernel tier".to_owned(),
            line: None,
            hint: "run `ashway doctor` to see what is missing".to_owned(),
        })?;
        let module = version.module();
        let entry = module
            .exports
            .iter()
            .find(|(name, _)| name == function)
            .map(|(_, index)| *index)
            .expect("the function was found when the instance was made");
        let mut handler = Handler {
            module: &module,
            entry,
            path: allowed.path,
            budget: budget(allowed.budget),
            share: allowed.share.map(Share::terms),
            may_reply: self.may_reply,
            locals_in_memory: false,
        };
        let spec = Spec {
            queue: queue.spec(node),
            layout: self.memory.layout,
            memory: self.memory.kind(),
        };
        let shape = Shape {
            around: Around::Instance(spec.queue.layout),
            memory: spec.memory,
            layout: spec.layout,
            cpus: spec.queue.cpus,
            budget: handler.budget,
            resizes: module.resizes(),
        };
        let name = program_name("k", &self.name);
        let maps = Maps {
            node,
            trusted: Some(queue.words()),
            memory: Some(&self.memory.mapped),
        };
        let mut rejected = None;
        for second_try in [false, true] {
            let begin = Instant::now();
            handler.locals_in_memory = second_try;
            let translated = match notes {
                None => instance::kernel(&spec, &handler),
                Some(_) => instance::kernel_observed(&spec, &handler),
            };
            let (image, _) = translated.map_err(|e| not_translated(&e))?;
            check(&image, &shape).map_err(|e| not_checked(&e))?;
            let translate = begin.elapsed();
            let loading = Instant::now();
            let loaded = match notes {
                None => programs::load(&name, &image, &maps),
                Some(notes) => programs::load_noting(&name, &image, &maps, notes),
            };
            match loaded {
                Ok(program) => {
                    return Ok(Promoted {
                        version: version.id,
                        program,
                        insns: image.insns.len(),
                        translate,
                        load: loading.elapsed(),
                        second_try,
                        blueprint: Some(Box::new(Blueprint {
                            image,
                            layout: spec.layout,
                            memory: spec.memory,
                            queue: spec.queue.layout,
                            cpus: spec.queue.cpus,
                            frags: node.frags,
                            path: handler.path,
                        })),
                    });
                }
                Err(error) => rejected = Some(error),
            }
        }
        Err(not_loaded(&rejected.expect("both tries were rejected")))
    }
}
