//! Sections of interfaces whose names are patterns, and the interfaces that match them.
//!
//! In a file that is read, a pattern stands where a name does: what is checked of it is checked as
//! if it were an interface. A node [resolves](Config::resolve) it to the interfaces that it has.

use std::ops::Range;
use std::sync::Arc;

use toml::de::DeTable;

use crate::diagnostics::Diagnostic;
use crate::glob::Glob;
use crate::implied;
use crate::read::Reader;
use crate::types::{Attach, Config, IfaceConfig, OwnIface, PathConfig};

/// `[iface."PATTERN"]`: takes every interface whose name matches and has no section of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Which names match.
    pub glob: Glob,
    /// How to receive from these.
    pub attach: Attach,
    /// Where the section starts, from 1.
    pub line: usize,
}

impl Config {
    /// Has the interfaces of these names, as far as they match, stand in the place of patterns:
    /// as interfaces of the node, and of each path that names the pattern.
    #[must_use]
    pub fn resolve<'n>(mut self, present: impl IntoIterator<Item = &'n str>) -> Self {
        for iface in std::mem::take(&mut self.ifaces) {
            match Glob::read(&iface.name) {
                Ok(glob) if Glob::is_one(&iface.name) => self.patterns.push(Pattern {
                    glob,
                    attach: iface.attach,
                    line: iface.line,
                }),
                _ => self.ifaces.push(iface),
            }
        }
        for path in &mut self.paths {
            let path = Arc::make_mut(path);
            let (patterns, names) = std::mem::take(&mut path.ifaces)
                .into_iter()
                .partition(|name| Glob::is_one(name));
            path.ifaces = names;
            path.patterns.extend::<Vec<String>>(patterns);
        }
        for name in present {
            let Some(iface) = self.matching(name) else {
                continue;
            };
            for path in &mut self.paths {
                if path.is_at(&iface) {
                    Arc::make_mut(path).ifaces.push(iface.name.clone());
                }
            }
            self.ifaces.push(iface);
        }
        self
    }

    /// What a pattern says of an interface that is not among the node's. Of several patterns the
    /// one with the longest literal text is meant.
    #[must_use]
    pub fn matching(&self, name: &str) -> Option<IfaceConfig> {
        if self.iface(name).is_some() {
            return None;
        }
        let patterns = self.patterns.iter().filter(|it| it.glob.matches(name));
        let found = patterns.min_by(|one, other| one.glob.rank().cmp(&other.glob.rank()))?;
        Some(IfaceConfig {
            name: name.to_owned(),
            attach: found.attach,
            own: OwnIface::default(),
            pattern: Some(found.glob.text().to_owned()),
            line: found.line,
        })
    }
}

impl PathConfig {
    /// Whether the path is at this interface because of a pattern.
    #[must_use]
    pub fn is_at(&self, iface: &IfaceConfig) -> bool {
        let pattern = iface.pattern.as_ref();
        pattern.is_some_and(|pattern| self.patterns.contains(pattern))
    }
}

/// Notes patterns that mean the same, and modules that a pattern cannot be the interface of.
pub(super) fn check(reader: &mut Reader<'_>, root: &DeTable<'_>, globs: &[(Glob, Range<usize>)]) {
    for (at, (glob, span)) in globs.iter().enumerate() {
        let same = globs[..at].iter().find(|(other, _)| other.means(glob));
        if let Some((other, first)) = same {
            reader.errors.push(Diagnostic {
                code: "ambiguous_match",
                message: format!(
                    "`{}` and `{}` match the same names",
                    other.text(),
                    glob.text()
                ),
                span: Some(span.clone()),
                label: Some(format!("`{}`", glob.text())),
                also: Some((first.clone(), format!("`{}`", other.text()))),
                hint: Some("one section is enough".to_owned()),
            });
        }
    }
    for (module, iface, span) in implied::written_links(root) {
        if Glob::is_one(&iface) {
            let message =
                format!("module `{module}` is of one interface, and `{iface}` is a pattern");
            let hint = "name an interface that has a section of its own".to_owned();
            reader.error("not_supported", span, message, Some(hint));
        }
    }
}

/// Notes a pattern for interfaces that a node makes itself, of which it has to know the names.
pub(super) fn check_attach(reader: &mut Reader<'_>, iface: &IfaceConfig, span: Range<usize>) {
    if iface.attach.is_own() {
        let (name, word) = (&iface.name, iface.attach.word());
        let message = format!(
            "`{name}` is a pattern, and with `attach = {word:?}` a node makes one interface"
        );
        let hint = "write a section with a name for each".to_owned();
        reader.error("contradiction", span, message, Some(hint));
    }
}

/// Why a path of modules cannot be at a pattern.
pub(super) fn refused(iface: &str) -> (String, String) {
    (
        format!(
            "`{iface}` is a pattern, and a path that does not lead from a handler straight to an \
             interface is at interfaces that are known beforehand"
        ),
        "name an interface that has a section of its own".to_owned(),
    )
}
