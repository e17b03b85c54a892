//! Many messages behind one header, taken apart into messages of the user tier.
//!
//! What a segment says of itself is [`ashway_wire::segments`]'s; here each gets a buffer.

use ashway_abi::Count;
use ashway_modules::Message;
use ashway_modules::message::Meta;
use ashway_wire::segments::{NotSegments, Segments};

/// What a frame of this `gso_size` stands for; `None` if that is 0 and it is one message.
///
/// # Errors
///
/// How one ends that cannot be taken apart.
pub(crate) fn of(frame: &[u8], gso_size: usize) -> Option<Result<Segments<'_>, Count>> {
    (gso_size != 0).then(|| {
        Segments::parse(frame, gso_size).map_err(|because| match because {
            NotSegments::BadLength => Count::DroppedBadLength,
            NotSegments::Unknown => Count::DroppedTooLong,
        })
    })
}

/// The message of segment `number`, in a buffer that holds nothing that is needed; `whole` is
/// what is known of the frame. The number that an observer knows that by is the first one's. One
/// copy.
pub(crate) fn nth(
    segments: &Segments<'_>,
    number: usize,
    whole: &Meta,
    mut message: Message,
) -> Message {
    let len = segments.frame_len(number);
    message.fill(len, |into| segments.write(number, into));
    message.meta.iface = whole.iface;
    message.meta.copies = whole.copies;
    message.copied();
    if number == 0 {
        message.meta.observed = whole.observed;
    }
    message
}
