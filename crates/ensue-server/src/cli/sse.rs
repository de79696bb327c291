//! What does a server-sent stream say?
//!
//! The bytes come in pieces of any size; a message ends at an empty line.

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

/// Takes bytes, gives messages.
#[derive(Debug, Default)]
pub struct Parser {
    rest: Vec<u8>,
    open: Message,
    has_data: bool,
}

impl Parser {
    /// The messages that these bytes complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Message> {
        self.rest.extend_from_slice(bytes);
        let mut messages = Vec::new();
        let mut start = 0;
        while let Some(length) = self.rest[start..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[start..start + length]).into_owned();
            start += length + 1;
            messages.extend(self.line(line.strip_suffix('\r').unwrap_or(&line)));
        }
        self.rest.drain(..start);
        messages
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.open);
            return std::mem::take(&mut self.has_data).then_some(message);
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
            // A comment (a heartbeat: the field before the colon is empty), or a field that we have no use for.
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
        let text =
            ": heartbeat\n\nid: 7\r\nevent: a.b\r\ndata: {\"x\":\"ü\"}\r\n\r\nretry: 5\n\ndata: 1\ndata: 2\n\nid: 9\n";
        let expected = [
            Message { event: "a.b".into(), id: Some("7".into()), data: "{\"x\":\"ü\"}".into() },
            Message { event: String::new(), id: None, data: "1\n2".into() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let messages: Vec<Message> = text.as_bytes().chunks(size).flat_map(|piece| parser.feed(piece)).collect();
            assert_eq!(messages, expected, "in pieces of {size}");
        }
    }
}
