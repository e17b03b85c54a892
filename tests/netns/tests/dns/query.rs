//! Queries in bytes: those that the table of the tests has an answer to, and others.

pub(crate) const A: u16 = 1;
const MX: u16 = 15;
const AAAA: u16 = 28;
const ANY: u16 = 255;

/// The longest name that the table takes: 62 characters.
pub(crate) const LONGEST: &str = "a23456789.b23456789.c23456789.d23456789.e23456789.f23456789.gh";

/// A message with one question.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    flags: u16,
    name: String,
    kind: u16,
    /// Flags and options of an OPT record.
    edns: Option<(u16, &'static [u8])>,
}

impl Query {
    pub(crate) fn new(name: impl Into<String>, kind: u16) -> Self {
        Self {
            flags: 0x0100,
            name: name.into(),
            kind,
            edns: None,
        }
    }

    fn edns(self, flags: u16, options: &'static [u8]) -> Self {
        Self {
            edns: Some((flags, options)),
            ..self
        }
    }

    fn question(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for label in self.name.split('.') {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend([self.kind.to_be_bytes(), [0, 1]].concat());
        bytes
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let additional = u16::from(self.edns.is_some());
        let mut bytes = header(self.flags, 0, additional);
        bytes.extend(self.question());
        if let Some((flags, options)) = self.edns {
            bytes.extend(opt(4096, flags, options));
        }
        bytes
    }

    /// What a name server of this address says.
    pub(crate) fn answer(&self, address: &[u8]) -> Vec<u8> {
        let additional = u16::from(self.edns.is_some());
        // A response by an authority, of the query's RD.
        let mut bytes = header(0x8400 | (self.flags & 0x0100), 1, additional);
        bytes.extend(self.question());
        bytes.extend([&[0xc0, 0x0c], &self.kind.to_be_bytes()[..], &[0, 1]].concat());
        bytes.extend(300_u32.to_be_bytes());
        bytes.extend((address.len() as u16).to_be_bytes());
        bytes.extend(address);
        if let Some((flags, _)) = self.edns {
            bytes.extend(opt(1232, flags & 0x8000, &[]));
        }
        bytes
    }
}

fn header(flags: u16, answers: u16, additional: u16) -> Vec<u8> {
    [0xbeef, flags, 1, answers, 0, additional]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect()
}

/// An OPT record (RFC 6891, 6.1.2) of version 0.
fn opt(size: u16, flags: u16, options: &[u8]) -> Vec<u8> {
    let words = [41, size, 0, flags, options.len() as u16];
    let words = words.iter().flat_map(|word| word.to_be_bytes());
    [0].into_iter()
        .chain(words)
        .chain(options.to_vec())
        .collect()
}

/// What has an answer, and the address in it.
pub(crate) fn answered() -> Vec<(Query, Vec<u8>)> {
    let v4 = vec![192, 0, 2, 80];
    let v6 = [&[0x20, 0x01, 0x0d, 0xb8][..], &[0; 11], &[0x80]].concat();
    // A cookie and padding: options that the handler does not know.
    let options = &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 12, 0, 2, 0, 0];
    let www = |kind| Query::new("www.example.org", kind);
    vec![
        (www(A), v4.clone()),
        (www(AAAA), v6.clone()),
        (Query::new("wWw.EXAMPLE.oRg", A), v4.clone()),
        (Query { flags: 0, ..www(A) }, v4.clone()),
        // AD and CD are of resolvers.
        (
            Query {
                flags: 0x0130,
                ..www(A)
            },
            v4.clone(),
        ),
        (www(A).edns(0, &[]), v4.clone()),
        (www(AAAA).edns(0x8000, &[]), v6.clone()),
        (www(A).edns(0x8000, options), v4.clone()),
        (www(AAAA).edns(0x0001, options), v6),
        (Query::new(LONGEST, A), vec![192, 0, 2, 62]),
        (Query::new("only4.example.org", A), vec![192, 0, 2, 4]),
    ]
}

/// What is the host's.
pub(crate) fn passed() -> Vec<Vec<u8>> {
    let www = |kind| Query::new("www.example.org", kind);
    let with = |at: usize, bytes: &[u8]| {
        let mut query = www(A).edns(0, &[]).bytes();
        query[at..][..bytes.len()].copy_from_slice(bytes);
        query
    };
    let end = www(A).bytes().len();
    let mut all = vec![
        // Names and types that are not there.
        Query::new("example.org", A).bytes(),
        Query::new("ww.example.org", A).bytes(),
        Query::new("www.example.orgx", A).bytes(),
        Query::new("only4.example.org", AAAA).bytes(),
        Query::new("only6.example.org", A).bytes(),
        Query::new(&LONGEST[..61], A).bytes(),
        www(MX).bytes(),
        www(ANY).bytes(),
        // A name that is too long for the table, and one for any.
        [
            &header(0, 0, 0)[..],
            &[1, b'x'].repeat(40),
            &[0, 0, 1, 0, 1],
        ]
        .concat(),
        [
            &header(0, 0, 0)[..],
            &[1, b'x'].repeat(200),
            &[0, 0, 1, 0, 1],
        ]
        .concat(),
        // Pointers where the first name stands, also one to itself.
        [&header(0, 0, 0)[..], &[0xc0, 0x0c, 0, 1, 0, 1]].concat(),
        [&header(0, 0, 0)[..], &[0xc0, 0x00, 0, 1, 0, 1]].concat(),
        [&header(0, 0, 0)[..], &[0x41, 0x0c, 0, 1, 0, 1, 0, 0]].concat(),
        // The root.
        [&header(0, 0, 0)[..], &[0, 0, 1, 0, 1]].concat(),
        // A response, another opcode, one that is cut, other numbers of records.
        with(2, &[0x81]),
        with(2, &[0x29]),
        with(2, &[0x03]),
        with(4, &[0, 0]),
        with(4, &[0, 2]),
        with(6, &[0, 1]),
        with(8, &[0, 1]),
        with(10, &[0, 0]),
        with(10, &[0, 2]),
        // Class CH.
        with(end - 2, &[0, 3]),
        // An OPT record with a name, another record, version 1, a length that lies.
        with(end, &[1]),
        with(end + 1, &[0, 250]),
        with(end + 6, &[1]),
        with(end + 9, &[0, 1]),
        // Bytes behind the last record, and options that do not add up.
        [www(A).bytes(), vec![0]].concat(),
        [www(A).edns(0, &[]).bytes(), vec![0]].concat(),
        www(A).edns(0, &[0, 10, 0]).bytes(),
        www(A).edns(0, &[0, 10, 0, 9, 1, 2]).bytes(),
        www(A).edns(0, &[0, 10, 0xff, 0xff]).bytes(),
    ];
    // Cut anywhere but behind the question, where the count of records is what is wrong.
    let whole = www(A).edns(0, &[0, 12, 0, 2, 0, 0]).bytes();
    all.extend((0..whole.len()).map(|len| whole[..len].to_vec()));
    all
}
