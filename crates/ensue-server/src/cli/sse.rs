//! Parser for server-sent events.
//!
//! Input arrives in pieces of any size; a message ends at an empty line. Comments are returned too, because one of them
//! marks the end of the history. A block with an `id` and no data is a position.

/// One message of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// What kind of message: the topic, or one of the system's own.
    pub event: String,
    /// The place to resume after, if the message names one.
    pub id: Option<String>,
    /// The content.
    pub data: String,
}

/// What a stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A message, complete.
    Message(Message),
    /// The id of a block without data: where to resume.
    Position(String),
    /// A comment, such as a heartbeat.
    Comment(String),
}

/// Takes bytes, gives what they say.
#[derive(Debug, Default)]
pub struct Parser {
    rest: Vec<u8>,
    open: Message,
    has_data: bool,
}

impl Parser {
    /// What these bytes complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Said> {
        self.rest.extend_from_slice(bytes);
        let mut said = Vec::new();
        let mut start = 0;
        while let Some(length) = self.rest[start..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[start..start + length]).into_owned();
            start += length + 1;
            said.extend(self.line(line.strip_suffix('\r').unwrap_or(&line)));
        }
        self.rest.drain(..start);
        said
    }

    fn line(&mut self, line: &str) -> Option<Said> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.open);
            return match std::mem::take(&mut self.has_data) {
                true => Some(Said::Message(message)),
                false => message.id.map(Said::Position),
            };
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.open.event = value.into(),
            "id" => self.open.id = Some(value.into()),
            "data" => {
                if self.has_data {
                    self.open.data.push('\n');
                }
                self.open.data.push_str(value);
                self.has_data = true;
            }
            "" => return Some(Said::Comment(value.into())),
            // A field that we have no use for.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_the_bytes_are_cut() {
        let text = ": heartbeat\nid: 6\n\nid: 7\r\nevent: a.b\r\ndata: {\"x\":\"ü\"}\r\n\r\nretry: 5\n\ndata: 1\ndata: 2\n\nid: 9\n";
        let expected = [
            Said::Comment("heartbeat".into()),
            Said::Position("6".into()),
            Said::Message(Message { event: "a.b".into(), id: Some("7".into()), data: "{\"x\":\"ü\"}".into() }),
            Said::Message(Message { event: String::new(), id: None, data: "1\n2".into() }),
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let said: Vec<Said> = text.as_bytes().chunks(size).flat_map(|piece| parser.feed(piece)).collect();
            assert_eq!(said, expected, "in pieces of {size}");
        }
    }
}
